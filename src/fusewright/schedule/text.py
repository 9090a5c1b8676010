"""The text of steps between passes, which reads back: behind its program, one nest or library call
after the other.

```
program rows(x: f32[4, 6])
  …
steps
  nest [i0<4]
    piece over [r0<6]
      t0 = load x[6*i0 + r0]
      t1 = exp t0
      store a[6*i0 + r0] = t1
    piece over [r0<6]
      t0 = load a[6*i0 + r0]
      reduce s[i0] = sum t0
```
A piece is written as a stage of a group is. What a step has from the program stands there alone:
layouts of buffers, and which statement a piece is from, which is the one that defines its buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.forms import print_form
from fusewright.ir.grammar import Reader
from fusewright.ir.index import Index
from fusewright.ir.lexer import Cursor, Line
from fusewright.ir.limits import LimitsOf, limits_of_cpu
from fusewright.ir.parse import BodyReader, read_program, read_statement
from fusewright.ir.parse_forms import read_fields
from fusewright.ir.program import ComputedBuffer, Program, RowStatement
from fusewright.ir.text import ValueRows, render_values, statement_rows
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import Access, Nest, Piece, Step, place_index

# Printing -----------------------------------------------------------------------------------------


def print_steps(steps: Sequence[Step | None]) -> str:
    """The steps that are left, in the program's order."""
    rows = [f"  {row}" for step in steps if step is not None for row in step_rows(step)]
    return "\n".join(["steps", *rows]) + "\n"


def step_rows(step: Step) -> list[str]:
    """The rows of one step; those of a nest's pieces are indented."""
    if not isinstance(step, Nest):
        return statement_rows(step)
    rows = [print_form(step)]
    for piece in step.pieces:
        rows += (f"  {row}" for row in piece_rows(piece))
    return rows


def piece_rows(piece: Piece) -> list[str]:
    """A piece's head, its values, and what becomes of the last."""
    behind = place_index(piece)[1] if piece.place is not None else ()
    values = render_values((*behind, piece.value))
    return [print_form(piece), *(f"  {row}" for row in (*values.rows, _result_row(piece, values)))]


def _result_row(piece: Piece, values: ValueRows) -> str:
    places = [write.index for write in piece.writes]
    if piece.place is not None:
        places = [place_index(piece)[0]]
    elements = ", ".join(
        f"{write.buffer}[{values.names.index(place)}]"
        for write, place in zip(piece.writes, places, strict=True)
    )
    value = values.operand(piece.value)
    match piece.kind:
        case "store":
            return f"store {elements} = {value}"
        case "scan":
            return f"scan {elements} = {piece.mode} {value}"
        case "gather":
            return f"gather {elements} = {piece.mode} {value}"
        case "scatter":
            return f"accumulate {piece.mode} {elements} = {value}"
        case kind:
            return f"reduce {elements} = {kind} {value}"


# Parsing ------------------------------------------------------------------------------------------


def parse_steps(
    text: str, limits_of: LimitsOf = limits_of_cpu
) -> tuple[Program, list[Step | None] | None, Analysis]:
    """A program, and the steps behind it, one at the place of each statement: None where that was
    inlined or fused into another. There are no steps where the text ends with the program.

    Raises: MalformedProgram, with the place in the text.
    """
    reader = Reader.of(text)
    program = read_program(reader)
    analysis = Analysis(program, limits_of)
    if reader.peek() is None:
        return program, None, analysis
    head = reader.next()
    cursor = reader.cursor(head)
    cursor.expect("steps")
    cursor.finish()
    steps = _Steps(reader, program, analysis)
    inside = Reader(text, reader.below(head), reader.expressions)
    inside.symbols, inside.types = reader.symbols, reader.types
    while (line := inside.peek()) is not None:
        steps.read(line, inside)
    reader.finish()
    return program, steps.read_so_far, analysis


class _Steps:
    """Reads steps, each of which is put at the place of its first statement."""

    def __init__(self, reader: Reader, program: Program, analysis: Analysis) -> None:
        self.reader = reader
        self.program = program
        self.analysis = analysis
        self.read_so_far: list[Step | None] = [None] * len(program.statements)
        self.positions = {
            buffer.name: position
            for position, statement in enumerate(program.statements)
            if isinstance(statement, ComputedBuffer)
            for buffer in statement.outputs
        }

    def read(self, line: Line, inside: Reader) -> None:
        cursor = inside.cursor(line)
        if cursor.at("nest") and cursor.peek(1).text != ":":
            nest = self._nest(inside)
            self._place(nest.pieces[0].position, nest, cursor)
        else:
            self._place(*self._statement(cursor, inside), cursor)

    def _place(self, position: int, step: Step, cursor: Cursor) -> None:
        if self.read_so_far[position] is not None:
            raise cursor.error("another step stands for this statement")
        self.read_so_far[position] = step

    def _statement(self, cursor: Cursor, inside: Reader) -> tuple[int, RowStatement]:
        statement = read_statement(inside)
        for position, own in enumerate(self.program.statements):
            if own == statement and self.read_so_far[position] is None:
                if isinstance(own, ComputedBuffer):
                    break
                return position, own
        raise cursor.error("a step is a nest, or a library call or copy of the program")

    def _nest(self, inside: Reader) -> Nest:
        head = inside.next()
        cursor = inside.cursor(head)
        own = Reader(inside.source, inside.below(head), inside.expressions)
        own.symbols, own.types = dict(inside.symbols), inside.types
        fields = read_fields(Nest, cursor, own)
        pieces: list[Piece] = []
        while own.peek() is not None:
            pieces.append(self._piece(own))
        if not pieces:
            raise cursor.error("a nest has a piece")
        return Nest(**fields, pieces=tuple(pieces), analysis=self.analysis)

    def _piece(self, nest: Reader) -> Piece:
        head = nest.next()
        own = Reader(nest.source, nest.below(head), nest.expressions)
        own.symbols, own.types = dict(nest.symbols), nest.types
        fields = read_fields(Piece, nest.cursor(head), own)
        values = BodyReader(own, own.symbols)
        if not own.lines:
            raise nest.cursor(head).error("a piece ends with what becomes of its value")
        for row in own.lines[:-1]:
            values.define(own.cursor(row))
        cursor = own.cursor(own.lines[-1])
        fields |= self._result(cursor, values)
        cursor.finish()
        name = fields["writes"][0].buffer
        if name not in self.positions:
            raise own.cursor(own.lines[-1]).error(f"no loops of the program define {name}")
        return Piece(**fields, position=self.positions[name])

    def _result(self, cursor: Cursor, values: BodyReader) -> dict[str, object]:
        """The fields that the last row of a piece gives."""
        if cursor.accept("store"):
            writes = _writes(cursor, values)
            cursor.expect("=")
            return {"kind": "store", "writes": writes, "value": values.operand(cursor)}
        if cursor.accept("accumulate"):
            mode = cursor.take("name")
            ((name, index),) = _elements(cursor, values)
            cursor.expect("=")
            return {
                "kind": "scatter",
                "mode": mode,
                "writes": (Access(name, index, is_affine=False),),
                "place": self.reader.expressions.index(index),
                "value": values.operand(cursor),
            }
        for kind in ("scan", "gather"):
            if cursor.accept(kind):
                writes = _writes(cursor, values)
                cursor.expect("=")
                mode = cursor.take("name")
                value = values.operand(cursor)
                return {"kind": kind, "mode": mode, "writes": writes, "value": value}
        cursor.expect("reduce")
        writes = _writes(cursor, values)
        cursor.expect("=")
        kind = cursor.take("name")
        return {"kind": kind, "writes": writes, "value": values.operand(cursor)}


def _writes(cursor: Cursor, values: BodyReader) -> tuple[Access, ...]:
    return tuple(Access(name, index) for name, index in _elements(cursor, values))


def _elements(cursor: Cursor, values: BodyReader) -> list[tuple[str, Index]]:
    """`m[i0], v[i0]`."""
    elements = [values.access(cursor)]
    while cursor.accept(","):
        elements.append(values.access(cursor))
    return elements
