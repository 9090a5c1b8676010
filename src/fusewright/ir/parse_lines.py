"""Reads the text form of wrapper lines: the inverse of `text_lines`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from fusewright.ir import lines as wrapper
from fusewright.ir.grammar import (
    Reader,
    between,
    read_buffer,
    read_call,
    read_dtype,
    read_index,
    read_index_list,
    read_operand,
    read_results,
    read_symbol,
)
from fusewright.ir.kernel import CpuFacts, Kernel, KernelArgument, KernelFacts, Launch, TritonFacts
from fusewright.ir.lexer import Cursor
from fusewright.ir.program import Buffer
from fusewright.ir.sizes import size_symbol


def parse_lines(text: str) -> list[wrapper.Line]:
    """The wrapper lines that `print_lines` printed."""
    reader = Reader.of(text)
    lines: list[wrapper.Line] = []
    while reader.peek() is not None:
        lines.append(_line(reader))
    return lines


def _line(reader: Reader) -> wrapper.Line:
    line = reader.next()
    cursor = reader.cursor(line)
    if cursor.peek().text == "kernel" and cursor.peek(1).kind == "name":
        return wrapper.DefineKernel(kernel=_kernel(reader))
    read = _BY_FIRST_WORD.get(cursor.peek().text)
    if cursor.peek(1).text in (":", "=", ",", "in") or read is None:
        read = _definition
    else:
        cursor.next()
    made = read(cursor, reader)
    cursor.finish()
    return made


# Lines that begin with a word of their own --------------------------------------------------------


def _ensure(cursor: Cursor, reader: Reader) -> wrapper.Line:
    return wrapper.EnsureLayout(buffer=read_buffer(cursor, reader))


def _release(cursor: Cursor, reader: Reader) -> wrapper.Line:
    return wrapper.FreeIfNotReused(buffer=read_buffer(cursor, reader))


def _free(cursor: Cursor, reader: Reader) -> wrapper.Line:
    return wrapper.Free(name=cursor.take("name"))


def _launch(cursor: Cursor, reader: Reader) -> wrapper.Line:
    kernel = cursor.take("name")
    buffers = between(cursor, "(", ")", lambda: cursor.take("name"))
    sizes = read_index_list(cursor, reader.symbols) if cursor.accept("sizes") else ()
    cursor.expect("units")
    units = read_index(cursor, reader.symbols)
    launch = Launch(kernel=kernel, buffers=buffers, sizes=sizes, units=units)
    return wrapper.CallKernel(launch=launch)


def _call(cursor: Cursor, reader: Reader) -> wrapper.Line:
    return _extern(cursor, reader, (), is_tuple=False)


def _copy(cursor: Cursor, reader: Reader) -> wrapper.Line:
    source = read_operand(cursor, reader)
    cursor.expect("to")
    return wrapper.CopyInto(target=cursor.take("name"), source=source)


def _return(cursor: Cursor, reader: Reader) -> wrapper.Line:
    return wrapper.Return(outputs=read_results(cursor, reader))


_BY_FIRST_WORD: dict[str, Callable[[Cursor, Reader], wrapper.Line]] = {
    "ensure": _ensure,
    "release": _release,
    "free": _free,
    "launch": _launch,
    "call": _call,
    "copy": _copy,
    "return": _return,
}


# Lines that define a name -------------------------------------------------------------------------


def _definition(cursor: Cursor, reader: Reader) -> wrapper.Line:
    if cursor.peek(1).text == ":":
        return _buffer(cursor, reader)
    if cursor.peek(1).text == "in":
        symbol = read_symbol(cursor)
        reader.symbols[symbol.name] = symbol.index
        cursor.expect("=")
        if cursor.accept("call"):
            return _extern(cursor, reader, (symbol.name,), is_tuple=False)
        cursor.expect("input")
        return wrapper.DefineSymbol(name=symbol.name, position=cursor.integer())
    if cursor.peek(1).text == "=" and cursor.peek(2).text == "input":
        name = cursor.take("name")
        cursor.expect("=")
        cursor.expect("input")
        reader.symbols[name] = size_symbol(name).index
        return wrapper.DefineSymbol(name=name, position=cursor.integer())
    return _results(cursor, reader)


def _buffer(cursor: Cursor, reader: Reader) -> wrapper.Line:
    buffer: Buffer = read_buffer(cursor, reader)
    cursor.expect("=")
    if cursor.accept("input"):
        return wrapper.TakeInput(buffer=buffer, position=cursor.integer())
    if cursor.accept("constant"):
        return wrapper.Constant(buffer=buffer)
    if cursor.accept("allocate"):
        return wrapper.Allocate(buffer=buffer)
    cursor.expect("reuse")
    return wrapper.Reuse(buffer=buffer, source=cursor.take("name"))


def _results(cursor: Cursor, reader: Reader) -> wrapper.Line:
    def one() -> str | None:
        return None if cursor.accept("None") else cursor.take("name")

    is_tuple = cursor.at("(")
    results = list(between(cursor, "(", ")", one)) if is_tuple else [one()]
    while not is_tuple and cursor.accept(","):
        results.append(one())
    cursor.expect("=")
    cursor.expect("call")
    return _extern(cursor, reader, tuple(results), is_tuple=is_tuple)


def _extern(
    cursor: Cursor, reader: Reader, results: tuple[str | None, ...], *, is_tuple: bool
) -> wrapper.Line:
    operator, arguments, keywords = read_call(cursor, reader)
    if not is_tuple and not results and cursor.accept("into"):
        out = cursor.take("name")
        return wrapper.CallExternOut(
            operator=operator, arguments=arguments, keywords=keywords, out=out
        )
    for name in results:
        if name is not None:
            reader.names.add(name)
    return wrapper.CallExtern(
        operator=operator,
        arguments=arguments,
        keywords=keywords,
        results=results,
        is_tuple=is_tuple,
    )


# Kernels ------------------------------------------------------------------------------------------


def _kernel(reader: Reader) -> Kernel:
    reader.position -= 1
    head = reader.next()
    cursor = reader.cursor(head)
    cursor.expect("kernel")
    name = cursor.take("name")
    cursor.expect("in")
    language = cursor.take("name")
    cursor.expect("key")
    key = ast.literal_eval(cursor.take("string"))
    facts = _facts(cursor)
    cursor.finish()
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
    """What `print_facts` printed."""
    if cursor.accept("grain"):
        return CpuFacts(grain=cursor.integer())
    cursor.expect("warps")
    warps = cursor.integer()
    cursor.expect("blocks")
    blocks = between(cursor, "[", "]", lambda: (cursor.take("name"), cursor.integer()))
    cursor.expect("types")
    types = between(cursor, "[", "]", lambda: _triton_type(cursor))
    checks = cursor.accept("asserts")
    return TritonFacts(types=types, blocks=blocks, warps=warps, checks_bounds=checks)


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
