"""Wrapper lines: what surrounds the kernels, as a list of small frozen records that hold no target
code.

A memory pass (`wrapper.memory`) rewrites allocate and free lines; an emitter turns the list into a
Python module. Operands are names of buffers, literals and numbers: a buffer's memory through
another layout has a line and a name of its own. Sizes are index expressions over the program's
size symbols.
"""

from __future__ import annotations

from pathlib import Path

from fusewright.ir.index import Index, SizeSymbol
from fusewright.ir.kernel import Kernel, KernelArgument, Launch
from fusewright.ir.origin import Origin
from fusewright.ir.program import Buffer, BufferReference, CheckFact, NumberStatement, Operand
from fusewright.records import field, record

ALIGNMENT = 64
"""Memory of buffers begins at multiples of so many bytes, as torch's own does on a CPU."""


@record(kw_only=True)
class DefineDevice:
    """`slot` stands for a device, where other lines say on which memory lies or kernels run."""

    form = "{slot:word} = device {device:text}"

    slot: str
    device: str
    """`cuda:0`."""


@record(kw_only=True)
class DefineSymbol:
    """Size symbol `name` is taken from position `position` of the input list."""

    form = "{name:size} = input {position:integer}"

    name: str
    position: int


@record(kw_only=True)
class TakeInput:
    """Buffer `buffer.name` is taken from position `position` of the input list, which the call
    clears.
    """

    form = "{buffer:new} = input {position:integer}"

    buffer: Buffer
    position: int


@record(kw_only=True)
class EnsureLayout:
    """See to it that the result of a library call is laid out as was compiled for."""

    form = "ensure {buffer:laid_out} [of {operator:word}] [strictly{is_strict:flag}]"

    buffer: Buffer
    operator: str = ""
    """The operator under which a copy is counted where the result has to be copied; empty where a
    copy is no surprise: a loop's step hands on its results as the user's function lays them out.
    """

    is_strict: bool = False
    """`WrongLayout` is raised instead of a copy."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def owner(self) -> str:
        """The name under which copies are counted: the operator, and the user's first line; empty
        where they are not counted.
        """
        origin = next((origin for origin in self.origins if origin.file), None)
        place = f", {Path(origin.file).name}:{origin.line}  {origin.text}" if origin else ""
        return self.operator and self.operator + place.rstrip()


@record(kw_only=True)
class TakeConstant:
    """A tensor known at compile time, found by name among the module's constants."""

    form = "{buffer:new} = constant"

    buffer: Buffer


@record(kw_only=True)
class View:
    """`buffer` is the memory of `source` through another layout, whose offset counts from the first
    element of `source`. One of a constant, for reading, is made when the module is loaded.
    """

    form = "{buffer:new} = view {source:buffer} [for reading{is_read_only:flag}]"

    buffer: Buffer
    source: str
    is_read_only: bool = False
    """All that use it read its elements and keep no tensor: autograd need not know of it."""


@record(kw_only=True)
class Allocate:
    """New memory for a buffer."""

    form = "{buffer:new} = allocate"

    buffer: Buffer


@record(kw_only=True)
class Arena:
    """New memory for the buffers that later lines place in it: `buffer` is its bytes."""

    form = "{buffer:new} = arena"

    buffer: Buffer


@record(kw_only=True)
class Place:
    """`buffer` is memory of an arena: as many of its bytes as it needs, from `offset` on, which is
    a multiple of `ALIGNMENT`. No two that are in use overlap.
    """

    form = "{buffer:new} = place in {arena:buffer} at {offset:integer}"

    buffer: Buffer
    arena: str
    offset: int


@record(kw_only=True)
class Reuse:
    """`buffer` takes over the memory of `source`, a buffer that is no longer read."""

    form = "{buffer:new} = reuse {source:buffer}"

    buffer: Buffer
    source: str


@record(kw_only=True)
class FreeIfNotReused:
    """The last use of a buffer lies behind; the memory pass turns this into `Free`, or removes it
    where another buffer takes the memory (`Reuse`).
    """

    form = "release {buffer:laid_out}"

    buffer: Buffer

    @property
    def name(self) -> str:
        """The buffer's, as `Free` has it."""
        return self.buffer.name


@record(kw_only=True)
class Free:
    """Drop the wrapper's reference to a buffer."""

    form = "free {name:buffer}"

    name: str


@record(kw_only=True)
class DefineKernel:
    """A kernel that later lines call by name."""

    form = "{kernel:kernel}"

    kernel: Kernel


@record(kw_only=True)
class CallKernel:
    form = "launch {launch:launch}"

    launch: Launch


CALLER = "caller"
"""In the lines of an alternative: the device of the call that runs them."""


@record(kw_only=True)
class Alternative:
    """One way to do the work of a choice: lines over the choice's arguments and sizes, on the
    device `CALLER`. Buffers that they allocate are their own, and freed by them.
    """

    name: str
    """The kind of alternative: `looped`, `split`, `library`."""

    lines: tuple[Line, ...]


@record(kw_only=True)
class DefineChoice:
    """Several ways to do the same work, of which measuring tells the fastest (`wrapper.choices`).
    The first is what the compiler would do without measuring.
    """

    form = "choice {name:word} key {key:text}{arguments,sizes,alternatives:alternatives}"

    name: str
    key: str
    """Hash of the alternatives, their kernels' sources included."""

    arguments: tuple[KernelArgument, ...]
    """The union of the tensors that the alternatives use. A call may give one buffer for two."""

    sizes: tuple[SizeSymbol, ...]
    alternatives: tuple[Alternative, ...]


@record(kw_only=True)
class CallChoice:
    """One of the alternatives of a choice does the work, on these buffers and sizes."""

    form = "choose {choice,buffers,sizes,device:choice_call}"

    choice: str
    buffers: tuple[str, ...]
    sizes: tuple[Index, ...]
    device: str
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class CallExtern:
    """`results = operator(arguments)`; results[i] is a buffer's name, or None where the result is
    not used.
    """

    form = "{results,is_tuple:results}call {operator:word}{arguments,keywords:given}"

    operator: str
    arguments: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...]
    results: tuple[str | None, ...]
    is_tuple: bool
    """Whether the operator returns a tuple or list (also of one)."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class CallProgram:
    """`(results) = name(arguments)`: a program that was compiled apart, by its name among the
    constants; its results as a library call's.
    """

    form = "{results:all_results}subprogram {name:word}{arguments:arguments}"

    name: str
    arguments: tuple[Operand, ...]
    results: tuple[str | None, ...]
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class CallUserTriton:
    """A launch, by Triton, of a kernel that the program wrote, with its own grid and constants, by
    its name among the constants.
    """

    form = (
        "user kernel {name:word}{arguments:arguments} [writes {writes:all_written}]"
        " [behind writes{is_behind_writes:flag}]"
    )

    name: str
    arguments: tuple[Operand, ...]
    writes: tuple[str, ...] = ()
    """The buffers among the arguments that it may write to."""

    is_behind_writes: bool = False
    """Whether inputs may have been written to before it, or by it: what it raises says so."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class Block:
    """Lines with names of their own that a condition or loop runs, each time on a list of values
    from which its inputs are taken by their positions. Kernels and devices are those of the lines
    around it; constants are its own, and found under its name and theirs.
    """

    name: str
    count: int
    """How many values it is given; it need not take them all."""

    lines: tuple[Line, ...]


@record(kw_only=True)
class Conditional:
    """`results` of one block or the other, as the predicate, a tensor of one element, holds or not.
    They share no memory with the arguments.
    """

    form = "{results:all_results}if {predicate:operand} on {arguments:arguments}{then,other:blocks}"

    predicate: Operand
    arguments: tuple[Operand, ...]
    then: Block
    other: Block
    results: tuple[str | None, ...]
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class WhileLoop:
    """Runs `body` while `condition` holds: both get the carried values, which the body gives anew,
    and behind them the other arguments. The results are the last values, and for each of `stacked`
    an opaque value, which holds what stood there in each step: positions among the carried values
    that a step is given, and behind these the results of the body.
    """

    form = (
        "{results:all_results}while on {arguments:arguments} carried {carried:integer}"
        " [stacked {stacked:places}]{condition,body:blocks}"
    )

    arguments: tuple[Operand, ...]
    carried: int
    condition: Block
    body: Block
    results: tuple[str | None, ...]
    stacked: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class ScanLoop:
    """Runs `body` for each slice along the first dimension of the `sliced` arguments behind the
    `carried`, or for what an opaque argument holds of each step: on the carried values, which it
    gives anew, the slices, and the other arguments. The results are the last carried values, and
    the stacks of `stacked`, which counts as in a while loop.
    """

    form = (
        "{results:all_results}scan on {arguments:arguments} carried {carried:integer}"
        " sliced {sliced:integer} stacked {stacked:places} [reversed{is_reversed:flag}]"
        "{body:blocks}"
    )

    arguments: tuple[Operand, ...]
    carried: int
    sliced: int
    stacked: tuple[int, ...]
    body: Block
    results: tuple[str | None, ...]
    is_reversed: bool = False
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class CallExternOut:
    """`operator(arguments, out=out)`: the out-variant, writing memory that was allocated before."""

    form = "call {operator:word}{arguments,keywords:given} into {out:written}"

    operator: str
    arguments: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...]
    out: str
    origins: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def all_keywords(self) -> tuple[tuple[str, Operand], ...]:
        """The keywords with `out`."""
        return *self.keywords, ("out", BufferReference(self.out))


@record(kw_only=True)
class CopyInto:
    """Copy an operand's elements into the memory of a graph input."""

    form = "copy {source:operand} to {target:written}"

    target: str
    source: Operand


@record(kw_only=True)
class DebugPrint:
    """Show what a kernel or library call is given, or has computed; or keep it as files, or name
    the kernel alone.
    """

    form = "debug {level:word} {when:word} {kernel:word}{values:named}[in {folder:text}]"

    level: str
    """One of `config.DEBUG_LEVELS`; not `off`."""

    when: str
    """`before`; `after`; or `input`, of the graph's own inputs."""

    kernel: str
    """The kernel or operator."""

    values: tuple[tuple[str, Operand], ...]
    folder: str = ""
    """Where files are kept."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class CheckNan:
    """Raise `NanFound` where one of the values, which `kernel` has computed, holds NaN."""

    form = "check nan {kernel:word}{values:named}"

    kernel: str
    """The kernel or operator; `inputs` for the graph's own inputs."""

    values: tuple[tuple[str, Operand], ...]
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class AssertLayout:
    """Raise `WrongLayout` where a buffer has another type, size or stride."""

    form = "assert {buffer:laid_out}"

    buffer: Buffer


@record(kw_only=True)
class Return:
    form = "{outputs:returned}"

    outputs: tuple[Operand, ...]


Line = (
    DefineDevice
    | DefineSymbol
    | TakeInput
    | EnsureLayout
    | TakeConstant
    | View
    | Allocate
    | Arena
    | Place
    | Reuse
    | FreeIfNotReused
    | Free
    | DefineKernel
    | CallKernel
    | DefineChoice
    | CallChoice
    | CallExtern
    | CallExternOut
    | CallProgram
    | CallUserTriton
    | Conditional
    | WhileLoop
    | ScanLoop
    | NumberStatement
    | CheckFact
    | CopyInto
    | DebugPrint
    | CheckNan
    | AssertLayout
    | Return
)
