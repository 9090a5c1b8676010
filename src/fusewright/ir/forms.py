"""How statements, wrapper lines and heads of nests, a row each, are written: declared beside
their fields.

    @record(kw_only=True)
    class Reuse:
        form = "{buffer:new} = reuse {source:buffer}"

        buffer: Buffer
        source: str

In braces stands a field and its kind, a key of `KINDS`; some kinds take two fields. What stands in
brackets is left out where its field is empty, and reads back by its first word. Printing, parsing
(`parse_forms`), and which buffers and indices a record names all follow from the form.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import Launch
from fusewright.ir.program import Buffer, ListOf, Operand, ViewReference, operand_buffers
from fusewright.ir.text_kernels import print_arguments, print_kernel
from fusewright.ir.text_parts import (
    layout_indices,
    operand_indices,
    print_buffer,
    print_list,
    print_loops,
    print_operand,
    print_symbol,
    print_wrapped,
    sizes_in,
)
from fusewright.records import field, record, replace

Scope = Mapping[str, Symbol]
"""The sizes that rows define, by name, with what is known of them."""


def _nothing(*values: Any) -> tuple[Any, ...]:
    return ()


@record(kw_only=True)
class FieldKind:
    """A kind of fields: what they print as, and what they name."""

    show: Callable[..., str] = str
    reads: Callable[..., Iterable[str]] = _nothing
    """The buffers that are used as they are."""

    overwrites: Callable[..., Iterable[str]] = _nothing
    """The buffers that exist already and whose memory is changed."""

    defines: Callable[..., Iterable[str]] = _nothing
    indices: Callable[..., Iterable[Index]] = _nothing


@record
class FormPiece:
    """A word of a form, or fields of one kind."""

    space: str
    """The space before it."""

    word: str
    fields: tuple[str, ...] = ()
    kind: str = ""

    def values(self, item: Any) -> list[Any]:
        return [getattr(item, name) for name in self.fields]


@record
class Part:
    """Pieces that stand together, or are left out together."""

    pieces: list[FormPiece] = field(default_factory=list)
    is_optional: bool = False


_PIECE: Final = r"(\s*)(?:\{([\w,]+):(\w+)\}|([^\s{}\[\]]+))"


@functools.cache
def parts_of(form: str) -> tuple[Part, ...]:
    """A form taken apart."""
    parts: list[Part] = []
    for text in re.split(r"(\[[^\]]*\])", form):
        is_optional = text.startswith("[")
        pieces = [
            FormPiece(space, word, tuple(fields.split(",")) if fields else (), kind)
            for space, fields, kind, word in re.findall(_PIECE, text.strip("[]"))
        ]
        parts.append(Part(pieces, is_optional))
    return tuple(parts)


def print_form(item: Any, scope: Scope | None = None) -> str:
    """The row of a statement or line."""
    text = ""
    for part in parts_of(item.form):
        if part.is_optional and not all(value for p in part.pieces for value in p.values(item)):
            continue
        text += " " if part.is_optional else ""
        text += "".join(piece.space + _shown(piece, item, scope or {}) for piece in part.pieces)
    return text


def _shown(piece: FormPiece, item: Any, scope: Scope) -> str:
    if piece.kind == "size":
        (name,) = piece.values(item)
        return print_symbol(scope[name]) if name in scope else str(name)
    return KINDS[piece.kind].show(*piece.values(item)) if piece.kind else piece.word


def buffers_read(item: Any) -> list[str]:
    """The buffers that a statement or line uses as they are, in the order of its text."""
    return _named(item, "reads")


def buffers_overwritten(item: Any) -> list[str]:
    """The buffers that exist already and whose memory a statement or line changes."""
    return _named(item, "overwrites")


def buffers_defined(item: Any) -> list[str]:
    return _named(item, "defines")


def indices_in(item: Any) -> list[Index]:
    """Every index expression of a statement or line."""
    return _named(item, "indices")


def inner_views(item: Any) -> list[ViewReference]:
    """The views among the operands of a statement or line."""
    views: list[ViewReference] = []

    def note(operand: Operand) -> Operand:
        if isinstance(operand, ViewReference):
            views.append(operand)
        return operand

    map_operands(item, note)
    return views


def blocks_of(item: Any) -> list[Any]:
    """The blocks of lines that a line runs."""
    pieces = (piece for part in parts_of(item.form) for piece in part.pieces)
    return [block for piece in pieces if piece.kind == "blocks" for block in piece.values(item)]


def map_operands(item: Any, function: Callable[[Operand], Operand]) -> Any:
    """A statement or line with what `function` gives for each of its operands, those in lists
    included.
    """

    def mapped(value: Operand) -> Operand:
        if isinstance(value, ListOf):
            return ListOf(tuple(map(mapped, value.items)))
        return function(value)

    changes: dict[str, Any] = {}
    for piece in (piece for part in parts_of(item.form) for piece in part.pieces):
        values = piece.values(item)
        match piece.kind, values:
            case "operand", [operand] if operand is not None:
                changes[piece.fields[0]] = mapped(operand)
            case (("returned" | "arguments" | "given"), [operands, *keywords]):
                changes[piece.fields[0]] = tuple(map(mapped, operands))
                for pairs in keywords:
                    changes[piece.fields[1]] = tuple(
                        (key, mapped(operand)) for key, operand in pairs
                    )
    return replace(item, **changes) if changes else item


def _named(item: Any, role: str) -> list[Any]:
    pieces = (piece for part in parts_of(item.form) for piece in part.pieces if piece.kind)
    return [
        name for piece in pieces for name in getattr(KINDS[piece.kind], role)(*piece.values(item))
    ]


def print_lines(lines: Iterable[Any]) -> str:
    """Wrapper lines: one row each, more for a kernel's definition."""
    lines = tuple(lines)
    sizes = sizes_in([index for line in lines for index in indices_in(line)])
    scope = {symbol.name: symbol for symbol in sizes}
    return "".join(f"{print_form(line, scope)}\n" for line in lines)


# Kinds of fields ----------------------------------------------------------------------------------

Keywords = Iterable[tuple[str, Operand]]


def _joined(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))


def _listed(items: Iterable[Any]) -> str:
    return f"[{_joined(items)}]"


def _given(arguments: Iterable[Operand], keywords: Keywords = ()) -> str:
    shown = [print_operand(argument) for argument in arguments]
    shown += [f"{name}={print_operand(value)}" for name, value in keywords]
    return f"({', '.join(shown)})"


def _operands(arguments: Iterable[Operand], keywords: Keywords) -> tuple[Operand, ...]:
    return (*arguments, *(value for _, value in keywords))


def _outputs(buffers: tuple[Buffer, ...]) -> str:
    return f"{', '.join(map(print_buffer, buffers))} = " if buffers else ""


def _results(names: tuple[str | None, ...], is_tuple: bool) -> str:
    if is_tuple:
        return f"({_joined(names)}{',' if len(names) == 1 else ''}) = "
    return f"{_joined(names)} = " if names else ""


def _call(
    name: str, buffers: Iterable[str], sizes: Sequence[Index], device: str, work: str = ""
) -> str:
    shown = f" sizes {print_list(sizes)}" if sizes else ""
    place = "" if device == "cpu" else f" on {device}"
    return f"{name}({', '.join(buffers)}){shown}{work}{place}"


def _launch(launch: Launch) -> str:
    work = f" units {launch.units}"
    return _call(launch.kernel, launch.buffers, launch.sizes, launch.device, work)


def _alternatives(arguments: Any, sizes: Iterable[Symbol], alternatives: Iterable[Any]) -> str:
    rows = [*print_arguments(arguments), *(f"  size {print_symbol(symbol)}" for symbol in sizes)]
    for alternative in alternatives:
        rows.append(f"  alternative {alternative.name}")
        rows += [f"    {row}" for row in print_lines(alternative.lines).splitlines()]
    return "".join(f"\n{row}" for row in rows)


def _block(block: Any) -> str:
    rows = print_lines(block.lines).splitlines()
    inner = "".join(f"\n    {row}" for row in rows)
    return f"\n  block {block.name} of {block.count}{inner}"


KINDS: Final[dict[str, FieldKind]] = {
    "word": FieldKind(),
    "integer": FieldKind(),
    "size": FieldKind(),
    "text": FieldKind(show=repr),
    "index": FieldKind(show=lambda index: index.text, indices=lambda index: (index,)),
    "flag": FieldKind(show=lambda flag: ""),
    "loops": FieldKind(
        show=print_loops,
        indices=lambda loops: [loop.extent for loop in loops],
    ),
    "kernel": FieldKind(show=print_kernel),
    "launch": FieldKind(
        show=_launch,
        reads=lambda launch: launch.buffers,
        indices=lambda launch: (*launch.sizes, launch.units),
    ),
    "choice_call": FieldKind(
        show=_call,
        reads=lambda name, buffers, sizes, device: buffers,
        indices=lambda name, buffers, sizes, device: sizes,
    ),
    "alternatives": FieldKind(show=_alternatives),
    "buffer": FieldKind(reads=lambda name: (name,)),
    "written": FieldKind(overwrites=lambda name: (name,)),
    "all_written": FieldKind(show=_listed, overwrites=lambda names: names),
    "laid_out": FieldKind(
        show=print_buffer,
        reads=lambda buffer: (buffer.name,),
        indices=lambda buffer: layout_indices(buffer.layout),
    ),
    "new": FieldKind(
        show=print_buffer,
        defines=lambda buffer: (buffer.name,),
        indices=lambda buffer: layout_indices(buffer.layout),
    ),
    "outputs": FieldKind(
        show=_outputs,
        defines=lambda buffers: [buffer.name for buffer in buffers],
        indices=lambda buffers: [
            index for buffer in buffers for index in layout_indices(buffer.layout)
        ],
    ),
    "results": FieldKind(
        show=_results, defines=lambda names, is_tuple: [name for name in names if name is not None]
    ),
    "all_results": FieldKind(
        show=lambda names: _results(names, True),
        defines=lambda names: [name for name in names if name is not None],
    ),
    "places": FieldKind(show=_listed),
    "aliases": FieldKind(
        show=lambda pairs: _listed(f"{output} of {source}" for output, source in pairs)
    ),
    "operand": FieldKind(
        show=print_operand,
        reads=lambda operand: operand_buffers([operand]),
        indices=lambda operand: operand_indices([operand]),
    ),
    "returned": FieldKind(
        show=lambda operands: print_wrapped("return ", [*map(print_operand, operands)], "", ""),
        reads=operand_buffers,
        indices=operand_indices,
    ),
    "arguments": FieldKind(show=_given, reads=operand_buffers, indices=operand_indices),
    "named": FieldKind(
        show=lambda values: _given((), values),
        reads=lambda values: operand_buffers([value for _, value in values]),
        indices=lambda values: operand_indices([value for _, value in values]),
    ),
    "blocks": FieldKind(show=lambda *blocks: "".join(map(_block, blocks))),
    "given": FieldKind(
        show=_given,
        reads=lambda *arguments: operand_buffers(_operands(*arguments)),
        indices=lambda *arguments: operand_indices(_operands(*arguments)),
    ),
}
