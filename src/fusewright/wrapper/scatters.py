"""Library calls that write some elements of a copy write to the original, where nobody reads it
again: the copy is spared.

before                                            after
------                                            -----
b = call aten.index_put.default(a, [i], v)        b: f32[6, 8] = reuse a
ensure b: f32[6, 8] of aten.index_put.default     call aten.index_put_.default(b, [i], v)
release a: f32[6, 8]

Only memory that the lines allocated is written to: an input, whose new value this may be, has to
keep the old one until nothing can raise any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fusewright.ir.lines import (
    Allocate,
    CallExtern,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Reuse,
)
from fusewright.ir.program import Buffer, BufferReference, operand_buffers
from fusewright.records import replace

IN_PLACE: Final = {
    f"aten.{name}.{overload}": f"aten.{name}_.{overload}"
    for name, overloads in (
        ("index_put", ("default",)),
        ("scatter", ("src", "value", "reduce", "value_reduce")),
        ("scatter_add", ("default",)),
        ("index_copy", ("default",)),
        ("index_add", ("default",)),
        ("masked_scatter", ("default",)),
        ("put", ("default",)),
    )
    for overload in overloads
} | {
    "aten.scatter_reduce.two": "aten.scatter_reduce_.two",
    "aten.index_reduce.default": "aten.index_reduce_.default",
}
"""By an operator that copies its first argument and writes to the copy, the one that writes to the
argument."""


def scatter_in_place(lines: Sequence[Line]) -> list[Line]:
    """`lines` with calls in place of those whose first argument dies with them."""
    owned: set[str] = set()
    result: list[Line] = []
    spared: set[int] = set()
    for position, line in enumerate(lines):
        match line:
            case _ if position in spared:
                continue
            case Allocate(buffer=buffer):
                owned.add(buffer.name)
            case Reuse(buffer=buffer, source=source) if source in owned:
                owned.add(buffer.name)
            case CallExtern() if (base := _base(line)) in owned:
                behind = _behind(lines, position, base, line.results)
                if behind is not None:
                    ensured, released, written = behind
                    spared |= {ensured, released}
                    owned.add(written.name)
                    result += _written_in_place(line, base, written)
                    continue
        result.append(line)
    return result


def _base(call: CallExtern) -> str:
    """The buffer of which a call writes to a copy, where it does so and has no other use for it;
    else empty.
    """
    match call.arguments:
        case (BufferReference(name=name), *others) if call.operator in IN_PLACE:
            more = operand_buffers((*others, *(value for _, value in call.keywords)))
            return "" if name in more else name
    return ""


def _behind(
    lines: Sequence[Line], position: int, base: str, results: tuple[str | None, ...]
) -> tuple[int, int, Buffer] | None:
    """The lines behind a call that see to the layout of its result and release `base`, and the
    result; None where this cannot lie there.
    """
    ensured, written = -1, None
    for place in range(position + 1, len(lines)):
        match lines[place]:
            case EnsureLayout(buffer=buffer) if (buffer.name,) == results:
                ensured, written = place, buffer
            case FreeIfNotReused(buffer=buffer) if buffer.name == base:
                is_alike = written is not None and written.layout == buffer.layout
                return (ensured, place, written) if written is not None and is_alike else None
            case EnsureLayout() | FreeIfNotReused() | Free():
                pass
            case _:
                return None
    return None


def _written_in_place(call: CallExtern, base: str, written: Buffer) -> list[Line]:
    arguments = (BufferReference(written.name), *call.arguments[1:])
    operator = IN_PLACE[call.operator]
    return [
        Reuse(buffer=written, source=base),
        replace(call, operator=operator, arguments=arguments, results=(None,)),
    ]
