"""The text form of sizes, layouts, buffers and operands, of which statements and lines are made,
and the index expressions that these hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusewright.ir.index import Index, LoopSymbol, RealSymbol, Symbol, contiguous_strides
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    Enumerated,
    Layout,
    ListOf,
    Literal,
    Operand,
    ViewReference,
)
from fusewright.ir.sizes import SizeFact
from fusewright.records import field, record

COLUMNS = 100
"""Program headers and results longer than this are printed one item a line."""


@record
class Names:
    """The names to print under; what is not listed keeps its own."""

    buffers: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[Symbol, Index] = field(default_factory=dict)

    def buffer(self, name: str) -> str:
        return self.buffers.get(name, name)

    def index(self, index: Index) -> str:
        return index.substitute(self.symbols).text if self.symbols else index.text


OWN = Names()
"""Everything under its own name."""


# Buffers, symbols and operands --------------------------------------------------------------------


def print_layout(layout: Layout, names: Names = OWN) -> str:
    """A layout as `f32[32, 128]`; with stride and offset where it is not contiguous, and with its
    device where that is not the CPU.
    """
    parts = [f"{layout.dtype}{print_list(layout.size, names)}"]
    if layout.stride != contiguous_strides(layout.size):
        parts.append(f"stride {print_list(layout.stride, names)}")
    if layout.offset != 0:
        parts.append(f"offset {names.index(layout.offset)}")
    if layout.device != "cpu":
        parts.append(f"on {layout.device}")
    return " ".join(parts)


def print_buffer(buffer: Buffer, names: Names = OWN) -> str:
    """A buffer with its layout, as `x: f32[32, 128]`."""
    return f"{names.buffer(buffer.name)}: {print_layout(buffer.layout, names)}"


def print_symbol(symbol: Symbol) -> str:
    """A symbol of a program with what is known of it: a size as `s0 in [2, inf) multiple 8`, a real
    number as `f0 real`.
    """
    if isinstance(symbol, RealSymbol):
        return f"{symbol.name} real"
    low = "(-inf" if symbol.lower is None else f"[{symbol.lower}"
    high = "inf)" if symbol.upper is None else f"{symbol.upper}]"
    multiple = f" multiple {symbol.multiple}" if symbol.multiple != 1 else ""
    return f"{symbol.name} in {low}, {high}{multiple}"


def print_size(fact: SizeFact) -> str:
    """A size with its bounds, as `s0 in [2, inf) hint 128`."""
    return f"{print_symbol(fact.symbol)} hint {fact.hint}"


def print_loops(loops: Sequence[LoopSymbol], names: Names = OWN) -> str:
    """Loops with their extents, as `[i0<32, i1<s0 + 1]`."""
    return "[" + ", ".join(_loop(symbol, names) for symbol in loops) + "]"


def print_operand(operand: Operand, names: Names = OWN) -> str:
    """An argument of a library call, or a result."""
    match operand:
        case BufferReference(name=name):
            return names.buffer(name)
        case ViewReference(name=name, layout=layout):
            return f"view({names.buffer(name)}, {print_layout(layout, names)})"
        case Literal(value=complex() as value):
            return f"complex({value.real!r}, {value.imag!r})"
        case Literal(value=value):
            return repr(value)
        case Enumerated(kind=kind, name=name):
            return f"{kind}.{name}"
        case ListOf(items=items):
            return "[" + ", ".join(print_operand(item, names) for item in items) + "]"
        case Index():
            return names.index(operand)


def print_list(indices: Iterable[Index], names: Names = OWN) -> str:
    return "[" + ", ".join(names.index(index) for index in indices) + "]"


def _loop(symbol: LoopSymbol, names: Names) -> str:
    renamed = names.symbols.get(symbol)
    name = symbol.name if renamed is None else renamed.text
    return f"{name}<{names.index(symbol.extent)}"


def print_wrapped(start: str, items: list[str], end: str, indentation: str) -> str:
    """Items between `start` and `end`, on one line if they fit, else one a line, in brackets."""
    line = f"{indentation}{start}{', '.join(items)}{end}"
    if len(line) <= COLUMNS:
        return line
    opening, closing = (start, end) if end else (f"{start}(", ")")
    inner = "".join(f"{indentation}    {item},\n" for item in items)
    return f"{indentation}{opening}\n{inner}{indentation}{closing}"


def sizes_in(indices: Iterable[Index]) -> list[Symbol]:
    """The symbols in the indices and in their loops' extents, loop variables left out, by name."""
    sizes: set[Symbol] = set()
    pending = list(indices)
    seen: set[Symbol] = set()
    while pending:
        for symbol in pending.pop().free() - seen:
            seen.add(symbol)
            if isinstance(symbol, LoopSymbol):
                pending.append(symbol.extent)
            else:
                sizes.add(symbol)
    return sorted(sizes, key=lambda symbol: (len(symbol.name), symbol.name))


def layout_indices(layout: Layout) -> tuple[Index, ...]:
    """Every index expression of a layout."""
    return (*layout.size, *layout.stride, layout.offset)


def operand_indices(operands: Iterable[Operand]) -> list[Index]:
    """Every index expression of the operands, those of their layouts included."""
    indices: list[Index] = []
    for operand in operands:
        match operand:
            case Index():
                indices.append(operand)
            case ViewReference(layout=layout):
                indices += layout_indices(layout)
            case ListOf(items=items):
                indices += operand_indices(items)
            case _:
                pass
    return indices
