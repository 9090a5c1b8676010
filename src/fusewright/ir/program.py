"""A Program: what lowering produces and scheduling consumes. Buffers, the statements that compute
them, and results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, contiguous_strides, integer, product
from fusewright.ir.origin import Origin
from fusewright.ir.sizes import SizeFact
from fusewright.ir.value import Expressions, Value
from fusewright.records import field, record

# Buffers ------------------------------------------------------------------------------------------


NUMBERS: Final = (DType.F64, DType.F32, DType.I64, DType.I32)
"""Types of numbers that kernels are given by value."""


@record(kw_only=True)
class Layout:
    """How a tensor's elements lie in memory; sizes and strides in elements."""

    dtype: DType
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index = field(default_factory=lambda: integer(0))
    """First element, counted from where the buffer's data begins."""

    device: str = "cpu"

    def index(self, position: tuple[Index, ...]) -> Index:
        """The element index of a position, one index a dimension."""
        total = self.offset
        for place, stride in zip(position, self.stride, strict=True):
            total = total + place * stride
        return total

    @property
    def span(self) -> Index:
        """The elements of memory from where the buffer's data begins to behind the last element."""
        if any(size == 0 for size in self.size):
            return integer(0)
        if all(part.is_constant for part in (*self.size, *self.stride, self.offset)):
            pairs = zip(self.size, self.stride, strict=True)
            steps = sum((size.constant - 1) * stride.constant for size, stride in pairs)
            return integer(self.offset.constant + steps + 1)
        if self.stride == contiguous_strides(self.size):
            return product(self.size) + self.offset
        last = self.offset
        for size, stride in zip(self.size, self.stride, strict=True):
            last = last + (size - 1) * stride
        return last + 1

    @property
    def decides_strides(self) -> bool:
        """Equal layouts have equal strides: torch gives dimensions of one element any stride."""
        return all(size.is_constant and size.constant > 1 for size in self.size)

    @property
    def is_opaque(self) -> bool:
        """Whether there is an object in place of a tensor: only calls give and take it."""
        return self.dtype is DType.OPAQUE

    def is_number_for(self, device: str) -> bool:
        """Whether kernels of another device are given the value, and no pointer: it is a single
        number of the CPU.
        """
        is_single = not self.size and self.offset == 0
        return is_single and self.device == "cpu" != device and self.dtype in NUMBERS

    @property
    def is_contiguous(self) -> bool:
        """Row-major from offset 0; dimensions of size 1 may have any stride."""
        expected = contiguous_strides(self.size)
        return self.offset == 0 and all(
            size == 1 or stride == want
            for size, stride, want in zip(self.size, self.stride, expected, strict=True)
        )

    @property
    def is_injective(self) -> bool:
        """Whether no two elements are known to share memory: each stride passes over all that the
        smaller ones reach.
        """
        left = [pair for pair in zip(self.size, self.stride, strict=True) if pair[0] != 1]
        reach = integer(1)
        while left:
            place = next((n for n, (_, stride) in enumerate(left) if stride == reach), None)
            if place is None:
                if not all(number.is_constant for number in (reach, *(pair[1] for pair in left))):
                    return False
                place = min(range(len(left)), key=lambda n: left[n][1].constant)
                if left[place][1].constant < reach.constant:
                    return False
            size, stride = left.pop(place)
            reach = reach + (size - 1) * stride
        return True


OPAQUE = Layout(dtype=DType.OPAQUE, size=(), stride=())
"""The layout of a value that no size describes, say what a library call keeps for its gradient."""


@record(kw_only=True)
class Buffer:
    """A named piece of memory, or an opaque value. Its name is unique in its program."""

    name: str
    layout: Layout


# Bodies -------------------------------------------------------------------------------------------


@record(kw_only=True)
class Pointwise:
    """One value for each point of the loops."""

    loops: tuple[LoopSymbol, ...]
    """One a dimension of the output, outermost first, named i0, i1, …; each carries its extent."""

    value: Value


@record(kw_only=True)
class Reduction:
    """One result for each point of `loops`, gathered over all points of `reduction_loops`."""

    loops: tuple[LoopSymbol, ...]
    reduction_loops: tuple[LoopSymbol, ...]
    """Named r0, r1, …"""

    kind: str
    """A key of `ops.REDUCTION_KINDS`."""

    value: Value


@record(kw_only=True)
class Scan:
    """A running result of `value` along one of the loops: at each point, over this point and all
    before it. The result is converted to the output's type.
    """

    loops: tuple[LoopSymbol, ...]
    """One a dimension of the output, as of `Pointwise`."""

    along: LoopSymbol
    """The loop of `loops` that is scanned."""

    kind: str
    """A key of `ops.SCAN_KINDS`."""

    value: Value
    """The scanned value, of the type in which the scan computes."""


@record(kw_only=True)
class Scatter:
    """For each point of the loops, combine `value` into element `index` of the (already
    initialised) output.

    The output buffer takes over the memory of `base`: it is that buffer after the scatter.
    """

    loops: tuple[LoopSymbol, ...]
    base: str
    index: Index
    indirect: tuple[Value, ...]
    """The `Indirect` values behind the loaded symbols in `index`."""

    mode: str
    """store, add, min or max."""

    value: Value


Body = Pointwise | Reduction | Scan | Scatter


# Operands of library calls and of results ---------------------------------------------------------


@record
class BufferReference:
    """A whole buffer, as it is laid out."""

    name: str


@record
class ViewReference:
    """A buffer's memory seen through another layout (size, stride, offset; the same element type,
    or another of the same width).
    """

    name: str
    layout: Layout


@record
class Literal:
    """A Python constant: None, bool, int, float, complex or str."""

    value: bool | int | float | complex | str | None


@record
class Enumerated:
    """A torch constant by kind and name: dtype float32, device cpu, layout strided, memory_format
    channels_last.
    """

    kind: str
    name: str


@record
class ListOf:
    """A list of operands."""

    items: tuple[Operand, ...]


Operand = BufferReference | ViewReference | Literal | Enumerated | ListOf | Index
"""An `Index` is an integer argument, constant or symbolic."""


# Statements ---------------------------------------------------------------------------------------


@record(kw_only=True)
class ComputedBuffer:
    """Loops that write one buffer (two for a Welford reduction)."""

    outputs: tuple[Buffer, ...]
    body: Body


def operand_buffers(operands: Iterable[Operand]) -> list[str]:
    """The names of the buffers among the operands, views and lists looked through, in order."""
    names: list[str] = []
    for operand in operands:
        match operand:
            case BufferReference(name=name) | ViewReference(name=name):
                names.append(name)
            case ListOf(items=items):
                names += operand_buffers(items)
    return names


@record(kw_only=True)
class CallOperator:
    """A call of an eager ATen operator."""

    form = (
        "{outputs:outputs}extern {operator:word}{arguments,keywords:given}"
        " [results {results:places}] [mutates {mutates:all_written}] [aliases {aliases:aliases}]"
        " [out {out_operator:word}] [new{gives_new_memory:flag}] [effect{has_effect:flag}]"
        " [reads moved{reads_moved:flag}]"
    )

    outputs: tuple[Buffer, ...]
    """Its tensor results, in order. Empty for an operator that only mutates."""

    operator: str
    """Qualified with its overload: `aten.addmm.default`."""

    arguments: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...] = ()
    results: tuple[int | None, ...] = ()
    """For each result of the operator, the position in `outputs`, or None when it is unused or no
    tensor. Empty when the operator returns one tensor."""

    mutates: tuple[str, ...] = ()
    """Names of buffers whose memory the call writes."""

    aliases: tuple[tuple[str, str], ...] = ()
    """Pairs (output, argument buffer) that share memory: the argument's memory lives as long as the
    output.
    """

    out_operator: str = ""
    """The out-variant that writes `outputs[0]` in place (`aten.addmm.out`), or empty."""

    gives_new_memory: bool = False
    """Whether the operator allocates its result, and keeps no hold of it: another buffer may take
    over the memory. That of an out-variant is allocated for it as for a group.
    """

    has_effect: bool = False
    """Whether the call draws random numbers or checks something; such calls keep their order."""

    reads_moved: bool = False
    """Whether an argument lies otherwise than in eager, as what was written to may: the results are
    to lie as eager's do nevertheless, so that a copy of them is no surprise.
    """

    @property
    def may_keep_arguments(self) -> bool:
        """Whether somebody may hold an argument when the call has returned, beside what it returns:
        a user's operator may store it, a collective may still read it. Torch's own do neither.
        """
        return not self.operator.startswith(("aten.", "prims."))


@record(kw_only=True)
class CallSubprogram:
    """A call of a program that was compiled apart, for the graphs of a condition or loop. It may
    have any effect.
    """

    form = "{outputs:outputs}subprogram {name:word}{arguments:arguments} results {results:places}"

    outputs: tuple[Buffer, ...]
    name: str
    """The name of the callable among the constants."""

    arguments: tuple[Operand, ...]
    results: tuple[int | None, ...]
    """For each result, the position in `outputs`, or None when it is unused or no tensor."""

    @property
    def may_keep_arguments(self) -> bool:
        """As of a call of an operator: eager's autograd saves arguments for a backward."""
        return True


@record(kw_only=True)
class UnfilledMemory:
    """New memory that nothing has been written to yet."""

    form = "{outputs:outputs}unfilled"

    outputs: tuple[Buffer, ...]


@record(kw_only=True)
class CallUserKernel:
    """A launch of a Triton kernel that the program wrote, which takes its tensors as they lie in
    memory.
    """

    form = (
        "user kernel {name:word}{arguments:arguments} [mutates {mutates:all_written}]"
        " [effect{has_effect:flag}] [behind writes{is_behind_writes:flag}]"
    )
    outputs = ()

    name: str
    """The name among the constants of what launches it."""

    arguments: tuple[Operand, ...]
    mutates: tuple[str, ...] = ()
    """Names of buffers whose memory the kernel writes to."""

    has_effect: bool = False
    """Whether it does something else, such as to print; such calls keep their order."""

    is_behind_writes: bool = False
    """Whether inputs may have been written to before it, or by it: what it raises says so."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class ComputeNumber:
    """A real number computed from numbers; what follows may depend on it."""

    form = "{name:size} = number {function:word}{arguments:arguments}"
    outputs = ()

    name: str
    """The symbol that stands for it."""

    function: str
    """A key of `number_functions.NUMBER_FUNCTIONS`."""

    arguments: tuple[Operand, ...]


@record(kw_only=True)
class ReadSize:
    """A size of a buffer that data decides; what follows may depend on it."""

    form = "{name:size} = size {dimension:integer} of {buffer:buffer}"
    outputs = ()

    name: str
    """The symbol that stands for it."""

    buffer: str
    dimension: int


@record(kw_only=True)
class ReadItem:
    """The number in a tensor of one element; what follows may depend on it."""

    form = "{name:size} = item of {source:operand}"
    outputs = ()

    name: str
    """The symbol that stands for it."""

    source: Operand


@record(kw_only=True)
class CheckFact:
    """A promise of the program that a number is not negative. RuntimeError with the message is
    raised where it is.
    """

    form = "check {number:index} >= 0 else {message:text}"
    outputs = ()

    number: Index
    message: str


@record(kw_only=True)
class CopyBack:
    """Write buffer `source` into the memory of graph input `target`: an input's mutation, made
    visible at the end.
    """

    form = "copy {source:operand} to {target:written}"
    outputs = ()

    target: str
    source: Operand


NumberStatement = ComputeNumber | ReadSize | ReadItem
LibraryCall = CallOperator | CallSubprogram
RowStatement = (
    LibraryCall | UnfilledMemory | CallUserKernel | NumberStatement | CheckFact | CopyBack
)
"""Statements without a body; each has a `form` (`ir/forms.py`)."""

Statement = ComputedBuffer | RowStatement


@record(kw_only=True)
class Program:
    """One compiled graph, before fusion."""

    name: str
    inputs: tuple[Buffer, ...]
    """Tensor inputs in calling order: arguments, parameters and buffers alike."""

    sizes: tuple[SizeFact, ...] = ()
    """Symbolic sizes; those that no library call gives precede the tensors in the calling order."""

    constants: tuple[Buffer, ...] = ()
    """Tensors known at compile time; their data travels beside, by name."""

    statements: tuple[Statement, ...]
    outputs: tuple[Operand, ...]
    mutations: tuple[tuple[str, str], ...] = ()
    """Pairs (result, input): the caller puts the result into the input's memory when all is done,
    so that it may be computed there once nothing needs the old value.
    """

    released_inputs: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Inputs that nobody else holds: their memory is free when they were last read."""

    origins: dict[str, tuple[Origin, ...]] = field(default_factory=dict, compare=False, repr=False)
    """By name of the first output buffer of a statement."""

    expressions: Expressions = field(default_factory=Expressions, compare=False, repr=False)
    """The table that made the values of the bodies; later stages make theirs in it."""

    @property
    def input_sizes(self) -> tuple[SizeFact, ...]:
        """The sizes that the caller passes; the others are results of library calls."""
        names = {s.name for s in self.statements if isinstance(s, NumberStatement)}
        return tuple(fact for fact in self.sizes if fact.symbol.name not in names)

    @property
    def hints(self) -> dict[str, int | float]:
        """By symbol, what its size was when the graph was captured."""
        return {fact.symbol.name: fact.hint for fact in self.sizes}

    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name."""
        outputs = (buffer for statement in self.statements for buffer in statement.outputs)
        return {b.name: b for b in (*self.inputs, *self.constants, *outputs)}

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices that its tensors are on, in order of their names."""
        return tuple(sorted({buffer.layout.device for buffer in self.buffers().values()}))
