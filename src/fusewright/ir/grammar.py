"""The common part of the parsers of the text form: reading lines, indices, layouts, buffers,
operands and calls.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TypeVar

from fusewright.errors import MalformedProgram
from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.dtype import BY_TEXT, DType
from fusewright.ir.index import (
    Index,
    LoopSymbol,
    RealSymbol,
    SizeSymbol,
    contiguous_strides,
    integer,
)
from fusewright.ir.lexer import Cursor, Line, split_lines
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
from fusewright.ir.value import Expressions, Number
from fusewright.records import field, record

T = TypeVar("T")

# Lines and scope ----------------------------------------------------------------------------------


@record(frozen=False)
class Reader:
    """The lines still to read, and what the names met so far mean."""

    source: str
    lines: list[Line]
    expressions: Expressions
    position: int = 0
    symbols: dict[str, Index] = field(default_factory=dict)
    """Size symbols, by name."""

    types: dict[str, DType] = field(default_factory=dict)
    """Element types of buffers and locals, by name."""

    names: set[str] = field(default_factory=set)
    """Results of calls in wrapper lines, whose types are not stated."""

    @classmethod
    def of(cls, text: str, expressions: Expressions | None = None) -> Reader:
        return cls(text, split_lines(text), Expressions() if expressions is None else expressions)

    def peek(self) -> Line | None:
        return self.lines[self.position] if self.position < len(self.lines) else None

    def next(self) -> Line:
        line = self.peek()
        if line is None:
            raise MalformedProgram("the text ends too early")
        self.position += 1
        return line

    def below(self, head: Line) -> list[Line]:
        """Take all lines that are indented deeper than `head`."""
        start = self.position
        while (line := self.peek()) is not None and line.indentation > head.indentation:
            self.position += 1
        return self.lines[start : self.position]

    def cursor(self, line: Line) -> Cursor:
        return Cursor(self.source, line.tokens)

    def finish(self) -> None:
        line = self.peek()
        if line is not None:
            raise self.cursor(line).error("this line belongs to nothing above it")


# Indices, layouts, buffers, operands --------------------------------------------------------------

Symbols = Mapping[str, Index]


def read_index(cursor: Cursor, symbols: Symbols) -> Index:
    total = _product(cursor, symbols)
    while cursor.at("+", "-"):
        sign = 1 if cursor.next().text == "+" else -1
        total = total + _product(cursor, symbols) * sign
    return total


def _product(cursor: Cursor, symbols: Symbols) -> Index:
    total = _factor(cursor, symbols)
    while cursor.at("*", "//", "%"):
        operator = cursor.next().text
        right = _factor(cursor, symbols)
        if operator == "*":
            total = total * right
        else:
            total = total // right if operator == "//" else total % right
    return total


def _factor(cursor: Cursor, symbols: Symbols) -> Index:
    if cursor.accept("-"):
        return -_factor(cursor, symbols)
    if cursor.accept("("):
        inner = read_index(cursor, symbols)
        cursor.expect(")")
        return inner
    if cursor.peek().kind == "integer":
        return integer(int(cursor.next().text))
    if cursor.at("min", "max") and cursor.peek(1).text == "(":
        operation = minimum if cursor.next().text == "min" else maximum
        cursor.expect("(")
        left = read_index(cursor, symbols)
        cursor.expect(",")
        right = read_index(cursor, symbols)
        cursor.expect(")")
        return operation(left, right)
    name = cursor.peek().text
    if cursor.peek().kind != "name" or name not in symbols:
        raise cursor.error(f"expected an index, found {name!r}")
    cursor.next()
    return symbols[name]


def read_index_list(cursor: Cursor, symbols: Symbols) -> tuple[Index, ...]:
    return between(cursor, "[", "]", lambda: read_index(cursor, symbols))


def between(cursor: Cursor, opening: str, closing: str, item: Callable[[], T]) -> tuple[T, ...]:
    """Items with commas between, in brackets; a comma may follow the last."""
    cursor.expect(opening)
    items: list[T] = []
    while not cursor.at(closing):
        items.append(item())
        if not cursor.accept(","):
            break
    cursor.expect(closing)
    return tuple(items)


def read_dtype(cursor: Cursor) -> DType:
    text = cursor.peek().text
    if text not in BY_TEXT:
        raise cursor.error(f"expected an element type, found {text!r}")
    cursor.next()
    return BY_TEXT[text]


def read_layout(cursor: Cursor, symbols: Symbols) -> Layout:
    dtype = read_dtype(cursor)
    size = read_index_list(cursor, symbols)
    stride = (
        read_index_list(cursor, symbols) if cursor.accept("stride") else contiguous_strides(size)
    )
    offset = read_index(cursor, symbols) if cursor.accept("offset") else integer(0)
    device = read_device(cursor)
    return Layout(dtype=dtype, size=size, stride=stride, offset=offset, device=device)


def read_device(cursor: Cursor) -> str:
    """`on cuda:0`, or nothing for the CPU."""
    if not cursor.accept("on"):
        return "cpu"
    device = cursor.take("name")
    return f"{device}:{cursor.integer()}" if cursor.accept(":") else device


def read_buffer(cursor: Cursor, reader: Reader) -> Buffer:
    name = cursor.take("name")
    cursor.expect(":")
    layout = read_layout(cursor, reader.symbols)
    reader.types[name] = layout.dtype
    return Buffer(name=name, layout=layout)


def at_symbol(cursor: Cursor) -> bool:
    """Whether a symbol that `read_symbol` reads comes next."""
    return cursor.peek(1).text in ("in", "real")


def read_symbol(cursor: Cursor) -> SizeSymbol | RealSymbol:
    """`s0 in [2, inf) multiple 8`, or `f0 real`."""
    name = cursor.take("name")
    if cursor.accept("real"):
        return RealSymbol(name)
    cursor.expect("in")
    lower = upper = None
    if cursor.accept("("):
        cursor.expect("-")
        cursor.expect("inf")
    else:
        cursor.expect("[")
        lower = cursor.integer()
    cursor.expect(",")
    if cursor.accept("inf"):
        cursor.expect(")")
    else:
        upper = cursor.integer()
        cursor.expect("]")
    multiple = cursor.integer() if cursor.accept("multiple") else 1
    return SizeSymbol(name, lower, upper, multiple)


def read_loops(cursor: Cursor, symbols: dict[str, Index]) -> tuple[LoopSymbol, ...]:
    """`[i0<32, i1<s0]`; the loop variables are added to `symbols`."""

    def read_loop() -> LoopSymbol:
        name = cursor.take("name")
        cursor.expect("<")
        return LoopSymbol(name, read_index(cursor, symbols))

    loops = between(cursor, "[", "]", read_loop)
    symbols.update((symbol.name, symbol.index) for symbol in loops)
    return loops


def read_operand(cursor: Cursor, reader: Reader) -> Operand:
    token = cursor.peek()
    if token.kind == "string":
        return Literal(ast.literal_eval(cursor.next().text))
    if cursor.at("["):
        return ListOf(between(cursor, "[", "]", lambda: read_operand(cursor, reader)))
    if cursor.at("None", "True", "False"):
        return Literal(ast.literal_eval(cursor.next().text))
    if _at_float(cursor):
        return Literal(read_number(cursor))
    if cursor.at("complex") and cursor.peek(1).text == "(":
        return Literal(_read_complex(cursor))
    if cursor.at("view") and cursor.peek(1).text == "(":
        return read_view(cursor, reader)
    if token.kind != "name" or token.text in reader.symbols or cursor.at("min", "max"):
        return read_index(cursor, reader.symbols)
    name = cursor.next().text
    if name in reader.types or name in reader.names:
        return BufferReference(name)
    kind, dot, rest = name.partition(".")
    if not dot:
        cursor.position -= 1
        raise cursor.error(f"{name} is not defined")
    if kind == "device" and cursor.accept(":"):
        rest += f":{cursor.integer()}"
    return Enumerated(kind, rest)


def read_view(cursor: Cursor, reader: Reader) -> ViewReference:
    cursor.expect("view")
    cursor.expect("(")
    name = cursor.take("name")
    cursor.expect(",")
    layout = read_layout(cursor, reader.symbols)
    cursor.expect(")")
    return ViewReference(name, layout)


def _at_float(cursor: Cursor) -> bool:
    token = cursor.peek(1) if cursor.at("-") else cursor.peek()
    return token.kind == "float" or (token.kind == "name" and token.text in ("inf", "nan"))


def _read_complex(cursor: Cursor) -> complex:
    """`complex(1.0, -inf)`: real and imaginary part."""
    cursor.expect("complex")
    cursor.expect("(")
    real = read_number(cursor)
    cursor.expect(",")
    imaginary = read_number(cursor)
    cursor.expect(")")
    return complex(real, imaginary)


def read_number(cursor: Cursor) -> Number:
    """True, False, an integer or a float, perhaps negative; `inf` and `nan` too."""
    if cursor.at("True", "False"):
        return cursor.next().text == "True"
    sign = -1 if cursor.accept("-") else 1
    if cursor.peek().kind == "integer":
        return sign * int(cursor.next().text)
    if cursor.peek().kind == "float" or cursor.at("inf", "nan"):
        return sign * float(cursor.next().text)
    raise cursor.error(f"expected a number, found {cursor.peek().text!r}")


def read_arguments(
    cursor: Cursor, reader: Reader
) -> tuple[tuple[Operand, ...], tuple[tuple[str, Operand], ...]]:
    """`(bias, x, y, beta=1)`: arguments and keywords."""
    keywords: list[tuple[str, Operand]] = []
    arguments: list[Operand] = []

    def read_argument() -> None:
        if cursor.peek().kind == "name" and cursor.peek(1).text == "=":
            name = cursor.take("name")
            cursor.expect("=")
            keywords.append((name, read_operand(cursor, reader)))
        else:
            arguments.append(read_operand(cursor, reader))

    between(cursor, "(", ")", read_argument)
    return tuple(arguments), tuple(keywords)


def read_results(cursor: Cursor, reader: Reader) -> tuple[Operand, ...]:
    """`a, b`, or the same in brackets, one a line."""
    outputs: list[Operand] = []
    if cursor.at("("):
        outputs += between(cursor, "(", ")", lambda: read_operand(cursor, reader))
    while cursor.peek().kind != "end":
        outputs.append(read_operand(cursor, reader))
        if not cursor.accept(","):
            break
    cursor.finish()
    return tuple(outputs)
