"""Reads rows by their forms: the inverse of `forms`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, get_args

from fusewright.errors import MalformedProgram
from fusewright.ir import lines as wrapper
from fusewright.ir.forms import FormPiece, parts_of
from fusewright.ir.grammar import (
    Reader,
    at_symbol,
    between,
    read_arguments,
    read_buffer,
    read_device,
    read_dtype,
    read_index,
    read_index_list,
    read_loops,
    read_operand,
    read_results,
    read_symbol,
)
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import (
    STAGES,
    CpuFacts,
    Kernel,
    KernelArgument,
    KernelFacts,
    Launch,
    TritonFacts,
)
from fusewright.ir.lexer import Cursor
from fusewright.ir.program import Buffer
from fusewright.ir.sizes import size_symbol


def parse_lines(text: str) -> list[wrapper.Line]:
    """The wrapper lines that `print_lines` printed."""
    return list(_lines(Reader.of(text)))


def _lines(reader: Reader) -> Iterator[wrapper.Line]:
    while reader.peek() is not None:
        yield read_row(reader, get_args(wrapper.Line))


def read_row(reader: Reader, classes: Sequence[type[Any]]) -> Any:
    """The next row as the first of the classes whose form it has.

    Raises: MalformedProgram, as the class does that could read most of it.
    """
    cursor = reader.cursor(reader.next())
    first, furthest, reason = reader.position, -1, None
    symbols, names = reader.symbols, reader.names
    for cls in classes:
        cursor.position, reader.position = 0, first
        reader.symbols, reader.names = dict(symbols), set(names)
        try:
            return _read(cls, cursor, reader)
        except MalformedProgram as error:
            if cursor.position > furthest:
                furthest, reason = cursor.position, error
    assert reason is not None, "no class to read"
    raise reason


def _read(cls: type[Any], cursor: Cursor, reader: Reader) -> Any:
    return cls(**read_fields(cls, cursor, reader))


def read_fields(cls: type[Any], cursor: Cursor, reader: Reader) -> dict[str, Any]:
    """The fields that the form of `cls` names, read from one row."""
    fields: dict[str, Any] = {}
    for part in parts_of(cls.form):
        if part.is_optional and not cursor.at(part.pieces[0].word):
            continue
        for piece in part.pieces:
            fields.update(_fields(piece, cursor, reader))
    cursor.finish()
    return fields


def _fields(piece: FormPiece, cursor: Cursor, reader: Reader) -> dict[str, Any]:
    if not piece.kind:
        cursor.expect(piece.word)
        return {}
    value = _READERS[piece.kind](cursor, reader)
    return dict(zip(piece.fields, value if len(piece.fields) > 1 else (value,), strict=True))


# Kinds of fields ----------------------------------------------------------------------------------


def _word(cursor: Cursor, reader: Reader) -> str:
    return cursor.take("name")


def _words(cursor: Cursor, reader: Reader) -> tuple[str, ...]:
    return between(cursor, "[", "]", lambda: cursor.take("name"))


def _size(cursor: Cursor, reader: Reader) -> str:
    symbol = read_symbol(cursor) if at_symbol(cursor) else size_symbol(_word(cursor, reader))
    reader.symbols.setdefault(symbol.name, symbol.index)
    return symbol.name


def read_outputs(cursor: Cursor, reader: Reader) -> tuple[Buffer, ...]:
    buffers: list[Buffer] = []
    while cursor.peek(1).text == ":":
        buffers.append(read_buffer(cursor, reader))
        cursor.accept(",")
    if buffers:
        cursor.expect("=")
    return tuple(buffers)


def _results(cursor: Cursor, reader: Reader) -> tuple[tuple[str | None, ...], bool]:
    def read_name() -> str | None:
        return None if cursor.accept("None") else cursor.take("name")

    is_tuple = cursor.at("(")
    is_single = cursor.peek(1).text == "="
    names = (
        between(cursor, "(", ")", read_name) if is_tuple else (read_name(),) if is_single else ()
    )
    if names or is_tuple:
        cursor.expect("=")
    reader.names.update(name for name in names if name is not None)
    return names, is_tuple


def _place(cursor: Cursor) -> int | None:
    return None if cursor.accept("None") else cursor.integer()


def _alias(cursor: Cursor) -> tuple[str, str]:
    output = cursor.take("name")
    cursor.expect("of")
    return output, cursor.take("name")


def _call(cursor: Cursor, reader: Reader) -> tuple[str, tuple[str, ...], tuple[Index, ...]]:
    """The name of what is called, its buffers and sizes."""
    name = cursor.take("name")
    buffers = between(cursor, "(", ")", lambda: cursor.take("name"))
    sizes = read_index_list(cursor, reader.symbols) if cursor.accept("sizes") else ()
    return name, buffers, sizes


def _launch(cursor: Cursor, reader: Reader) -> Launch:
    kernel, buffers, sizes = _call(cursor, reader)
    cursor.expect("units")
    units = read_index(cursor, reader.symbols)
    device = read_device(cursor)
    return Launch(kernel=kernel, buffers=buffers, sizes=sizes, units=units, device=device)


def _choice_call(cursor: Cursor, reader: Reader) -> tuple[Any, ...]:
    return *_call(cursor, reader), read_device(cursor)


def _returned(cursor: Cursor, reader: Reader) -> tuple[Any, ...]:
    cursor.expect("return")
    return read_results(cursor, reader)


def _blocks(cursor: Cursor, reader: Reader) -> Any:
    inner = Reader(
        reader.source, reader.below(reader.lines[reader.position - 1]), reader.expressions
    )
    blocks: list[wrapper.Block] = []
    while (head := inner.peek()) is not None:
        row = inner.cursor(inner.next())
        row.expect("block")
        name = row.take("name")
        row.expect("of")
        count = row.integer()
        row.finish()
        own = Reader(reader.source, inner.below(head), reader.expressions)
        lines = tuple(_lines(own))
        blocks.append(wrapper.Block(name=name, count=count, lines=lines))
    return blocks if len(blocks) > 1 else blocks[0]


def _alternatives(cursor: Cursor, reader: Reader) -> tuple[Any, ...]:
    """Arguments, sizes and alternatives of a choice."""
    rows = reader.below(reader.lines[reader.position - 1])
    inner = Reader(reader.source, rows, reader.expressions)
    arguments: list[KernelArgument] = []
    sizes: list[Symbol] = []
    alternatives: list[wrapper.Alternative] = []
    while (head := inner.peek()) is not None:
        row = inner.cursor(inner.next())
        if row.accept("alternative"):
            own = Reader(reader.source, inner.below(head), reader.expressions)
            own.symbols = {symbol.name: symbol.index for symbol in sizes}
            own.types = {argument.name: argument.dtype for argument in arguments}
            name = row.take("name")
            alternatives.append(wrapper.Alternative(name=name, lines=tuple(_lines(own))))
        elif row.accept("size"):
            sizes.append(read_symbol(row))
        else:
            arguments.append(_argument(row))
        row.finish()
    return tuple(arguments), tuple(sizes), tuple(alternatives)


# Kernels ------------------------------------------------------------------------------------------


def _kernel(cursor: Cursor, reader: Reader) -> Kernel:
    head = reader.lines[reader.position - 1]
    cursor.expect("kernel")
    name = cursor.take("name")
    cursor.expect("in")
    language = cursor.take("name")
    cursor.expect("key")
    key = ast.literal_eval(cursor.take("string"))
    facts = _facts(cursor)
    arguments: list[KernelArgument] = []
    sizes: list[str] = []
    source: list[str] = []
    for line in reader.below(head):
        if line.raw is not None:
            source.append(line.raw)
            continue
        row = reader.cursor(line)
        if row.accept("size"):
            sizes.append(row.take("name"))
        else:
            arguments.append(_argument(row))
        row.finish()
    return Kernel(
        name=name,
        key=key,
        language=language,
        source="\n".join(source),
        arguments=tuple(arguments),
        sizes=tuple(sizes),
        facts=facts,
    )


def _facts(cursor: Cursor) -> KernelFacts:
    """The facts that `print_facts` printed."""
    if cursor.accept("grain"):
        return CpuFacts(grain=cursor.integer())
    cursor.expect("warps")
    warps = cursor.integer()
    stages = cursor.integer() if cursor.accept("stages") else STAGES
    cursor.expect("blocks")
    blocks = between(cursor, "[", "]", lambda: (cursor.take("name"), cursor.integer()))
    cursor.expect("types")
    types = between(cursor, "[", "]", lambda: _triton_type(cursor))
    checks = cursor.accept("asserts")
    several = cursor.accept("launches")
    return TritonFacts(
        types=types,
        blocks=blocks,
        warps=warps,
        checks_bounds=checks,
        stages=stages,
        launches=between(cursor, "[", "]", cursor.integer) if several else (),
    )


def _triton_type(cursor: Cursor) -> str:
    """A scalar, or a pointer to one."""
    return ("*" if cursor.accept("*") else "") + cursor.take("name")


def _argument(cursor: Cursor) -> KernelArgument:
    is_written = cursor.accept("write")
    if not is_written:
        cursor.expect("read")
    name = cursor.take("name")
    cursor.expect(":")
    return KernelArgument(name=name, dtype=read_dtype(cursor), is_written=is_written)


_READERS: Final[dict[str, Callable[[Cursor, Reader], Any]]] = {
    "word": _word,
    "buffer": _word,
    "written": _word,
    "all_written": _words,
    "integer": lambda cursor, reader: cursor.integer(),
    "text": lambda cursor, reader: ast.literal_eval(cursor.take("string")),
    "index": lambda cursor, reader: read_index(cursor, reader.symbols),
    "flag": lambda cursor, reader: True,
    "size": _size,
    "loops": lambda cursor, reader: read_loops(cursor, reader.symbols),
    "kernel": _kernel,
    "launch": _launch,
    "choice_call": _choice_call,
    "alternatives": _alternatives,
    "laid_out": read_buffer,
    "new": read_buffer,
    "outputs": read_outputs,
    "results": _results,
    "all_results": lambda cursor, reader: _results(cursor, reader)[0],
    "places": lambda cursor, reader: between(cursor, "[", "]", lambda: _place(cursor)),
    "aliases": lambda cursor, reader: between(cursor, "[", "]", lambda: _alias(cursor)),
    "operand": read_operand,
    "returned": _returned,
    "arguments": lambda cursor, reader: read_arguments(cursor, reader)[0],
    "named": lambda cursor, reader: read_arguments(cursor, reader)[1],
    "blocks": _blocks,
    "given": read_arguments,
}
"""How each of `forms.KINDS` is read."""
