"""Passes that put checks and debug prints among the lines, where options ask for them.

before                          after
------                          -----
launch k(x, y)                  debug print before k(x=x)
                                launch k(x, y)
                                debug print after k(y=y)
                                check nan k(y=y)

They run behind the memory pass, so that memory is planned as it is without them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

from fusewright.config import Options
from fusewright.ir.forms import (
    blocks_of,
    indices_in,
)
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.lines import (
    Allocate,
    AssertLayout,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CheckNan,
    Conditional,
    CopyInto,
    DebugPrint,
    DefineChoice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    Line,
    Place,
    ScanLoop,
    TakeInput,
    WhileLoop,
)
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    BufferReference,
    ListOf,
    Literal,
    Operand,
    ReadItem,
    ReadSize,
)
from fusewright.ir.sizes import size_symbol
from fusewright.records import record, replace
from fusewright.wrapper.choices import choices_in

INPUTS: Final = "inputs"
"""The name of the graph's own inputs, where a kernel's name stands."""

Values = tuple[tuple[str, Operand], ...]
"""Tensors and numbers under the names that they are shown by."""


@record(kw_only=True)
class ObservedWork:
    """The work of a line, as debug prints and checks see it."""

    name: str
    """The kernel or operator."""

    before: Values
    after: Values
    origins: tuple[Origin, ...]


Pass = Callable[[tuple[Line, ...], Options], tuple[Line, ...]]


def instrument(lines: tuple[Line, ...], options: Options) -> tuple[Line, ...]:
    """`lines` with what the options ask for; the very same where they ask for nothing."""
    for instrumentation in PASSES:
        lines = instrumentation(lines, options)
    return lines


def why_watched(options: Options) -> str:
    """Why the host looks at values while they are computed; empty: it does not."""
    if options.debug_printer != "off":
        return "the debug printer waits for each kernel"
    return "check_nan waits for each kernel" if options.check_nan else ""


def check_layouts(lines: tuple[Line, ...], options: Options) -> tuple[Line, ...]:
    """Each input is checked to be laid out as was compiled for."""
    if not options.check_layouts:
        return lines
    inputs = [line.buffer for line in lines if isinstance(line, TakeInput)]
    tensors = [buffer for buffer in inputs if not buffer.layout.is_opaque]
    return _behind_inputs(lines, [AssertLayout(buffer=buffer) for buffer in tensors])


def check_nan(lines: tuple[Line, ...], options: Options) -> tuple[Line, ...]:
    """Results of kernels and library calls are checked for NaN, and the inputs first."""
    if not options.check_nan:
        return lines
    result: list[Line] = []
    for line, work in _with_work(lines):
        result.append(line)
        if work is not None and (values := _tensors(work.after)):
            result.append(CheckNan(kernel=work.name, values=values, origins=work.origins))
    values = _tensors(_inputs(lines))
    return _behind_inputs(tuple(result), [CheckNan(kernel=INPUTS, values=values)] if values else [])


def print_values(lines: tuple[Line, ...], options: Options) -> tuple[Line, ...]:
    """Arguments and results of kernels and library calls are printed."""
    level = options.debug_printer
    if level == "off":
        return lines
    is_told = _kernel_filter(options.debug_kernels)
    folder = options.debug_folder if level == "save" else ""

    def told(when: str, work: ObservedWork, values: Values) -> DebugPrint:
        return DebugPrint(
            level=level,
            when=when,
            kernel=work.name,
            values=values,
            folder=folder,
            origins=work.origins,
        )

    result: list[Line] = []
    for line, work in _with_work(lines):
        if work is None or not is_told(work.name):
            result.append(line)
        else:
            result += [told("before", work, work.before), line, told("after", work, work.after)]
    inputs = ObservedWork(name=INPUTS, before=_inputs(lines), after=(), origins=())
    has_inputs = inputs.before and level != "kernel_names" and is_told(INPUTS)
    return _behind_inputs(
        tuple(result), [told("input", inputs, inputs.before)] if has_inputs else []
    )


def refuse_copies(lines: tuple[Line, ...], options: Options) -> tuple[Line, ...]:
    """Results of library calls that would have to be copied are an error."""
    if not options.strict:
        return lines
    return tuple(
        replace(line, is_strict=True) if isinstance(line, EnsureLayout) and line.operator else line
        for line in lines
    )


PASSES: Final[tuple[Pass, ...]] = (check_nan, print_values, check_layouts, refuse_copies)
"""In this order: values are printed before a check of them raises, and layouts are checked before
values are looked at."""


def _kernel_filter(text: str) -> Callable[[str], bool]:
    """Whether a kernel or operator is among those that an option names."""
    patterns = [pattern for part in text.split(",") if (pattern := part.strip().lower())]

    def is_told(name: str) -> bool:
        return not patterns or any(
            fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns
        )

    return is_told


def _behind_inputs(lines: tuple[Line, ...], more: Sequence[Line]) -> tuple[Line, ...]:
    """`lines` with more of them when all inputs have been taken."""
    places = [place for place, line in enumerate(lines, 1) if isinstance(line, TakeInput)]
    place = max(places, default=0)
    return (*lines[:place], *more, *lines[place:])


def _inputs(lines: Sequence[Line]) -> Values:
    symbols = _symbols(lines)
    values: list[tuple[str, Operand]] = []
    for line in lines:
        match line:
            case DefineSymbol(name=name):
                values.append((name, symbols[name].index))
            case TakeInput(buffer=buffer):
                values.append((buffer.name, BufferReference(buffer.name)))
    return tuple(values)


def _symbols(lines: Sequence[Line]) -> dict[str, Symbol]:
    """The symbols that the lines define, as they stand in their indices."""
    symbols: dict[str, Symbol] = {
        line.name: size_symbol(line.name)
        for line in lines
        if isinstance(line, DefineSymbol | ReadSize | ReadItem)
    }
    indices = (index for line in lines for index in indices_in(line))
    symbols.update((symbol.name, symbol) for index in indices for symbol in index.free())
    return symbols


def _with_work(lines: Sequence[Line]) -> Iterable[tuple[Line, ObservedWork | None]]:
    """Each line, with what it computes where it calls something."""
    kernels: dict[str, Kernel | DefineChoice] = {
        line.kernel.name: line.kernel for line in lines if isinstance(line, DefineKernel)
    }
    kernels |= choices_in(lines)
    symbols = _symbols(lines)
    unwritten: set[str] = set()
    for line in lines:
        match line:
            case Allocate(buffer=buffer) | Place(buffer=buffer):
                unwritten.add(buffer.name)
            case CopyInto(target=target):
                unwritten.discard(target)
        work = _work(line, kernels, symbols, unwritten)
        unwritten -= {name for name, _ in work.after} if work is not None else set()
        yield line, work


def _launched(
    kernel: Kernel | DefineChoice, call: Launch | CallChoice, unwritten: Container[str]
) -> ObservedWork:
    """The work of a kernel, or of whichever alternative of a choice."""
    pairs = list(zip(kernel.arguments, call.buffers, strict=True))
    read = [name for argument, name in pairs if argument.is_read and name not in unwritten]
    written = [name for argument, name in pairs if argument.is_written]
    return ObservedWork(
        name=kernel.name,
        before=(*_buffers(read), *zip(map(str, kernel.sizes), call.sizes, strict=True)),
        after=_buffers(written),
        origins=call.origins,
    )


def _work(
    line: Line,
    kernels: Mapping[str, Kernel | DefineChoice],
    symbols: Mapping[str, Symbol],
    unwritten: Container[str],
) -> ObservedWork | None:
    """`unwritten`: buffers whose memory holds nothing yet, though a kernel that writes to it reads
    it again.
    """
    match line:
        case CallKernel(launch=launch):
            return _launched(kernels[launch.kernel], launch, unwritten)
        case CallChoice(choice=choice):
            return _launched(kernels[choice], line, unwritten)
        case CallExtern() | CallExternOut():
            written = [line.out] if isinstance(line, CallExternOut) else _used(line.results)
            return ObservedWork(
                name=line.operator,
                before=_arguments(line.arguments, line.keywords),
                after=_buffers(written),
                origins=line.origins,
            )
        case CallProgram():
            return ObservedWork(
                name=line.name,
                before=_arguments(line.arguments, ()),
                after=_buffers(_used(line.results)),
                origins=line.origins,
            )
        case CallUserTriton():
            given = _arguments(line.arguments, ())
            return ObservedWork(
                name=line.name,
                before=tuple(pair for pair in given if pair[0] not in unwritten),
                after=_buffers(line.writes),
                origins=line.origins,
            )
        case Conditional() | WhileLoop() | ScanLoop():
            return ObservedWork(
                name=blocks_of(line)[0].name,
                before=_arguments(line.arguments, ()),
                after=_buffers(_used(line.results)),
                origins=line.origins,
            )
        case ReadItem(name=name, source=source):
            return ObservedWork(
                name="item",
                before=_arguments((source,), ()),
                after=((name, symbols[name].index),),
                origins=(),
            )
        case _:
            return None


def _used(results: Iterable[str | None]) -> list[str]:
    return [name for name in results if name is not None]


def _buffers(names: Iterable[str]) -> Values:
    """Buffers under their own names, each once."""
    return tuple((name, BufferReference(name)) for name in dict.fromkeys(names))


def _arguments(arguments: Iterable[Operand], keywords: Values) -> Values:
    """The tensors and numbers among the arguments of a call: tensors by the names of their buffers,
    numbers by their places or keywords.
    """
    values: dict[str, Operand] = {}
    positional = [(f"argument{place}", operand) for place, operand in enumerate(arguments)]
    for place, operand in (*positional, *keywords):
        for item in operand.items if isinstance(operand, ListOf) else (operand,):
            match item:
                case BufferReference(name=name):
                    pass
                case Index() | Literal(value=int() | float() | complex()):
                    name = place
                case _:
                    continue
            while values.get(name, item) != item:  # say, a buffer with the name of a keyword
                name += "_"
            values[name] = item
    return tuple(values.items())


def _tensors(values: Values) -> Values:
    return tuple((name, value) for name, value in values if isinstance(value, BufferReference))
