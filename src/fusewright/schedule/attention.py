"""Attention as loops, where the device's kernels are faster than its library's: products whose
scores lie in memory between them, as long as these stay in its caches, or are handed on by blocks
of rows (`wrapper.chains`).

Before:
```
y: f32[2, 3, 8, 4] = extern aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v)
```
After, with indices left out:
```
y_product: f32[2, 3, 8, 8] = reduce dot over [r0<4]    yield q * k
y_scores: f32[2, 3, 8, 8] = pointwise                  yield y_product * 0.5
y_greatest: f32[2, 3, 8] = reduce max over [r0<8]      yield y_scores
y_weights: f32[2, 3, 8, 8] = pointwise                 yield exp(y_scores - y_greatest)
y_total: f32[2, 3, 8] = reduce sum over [r0<8]         yield y_weights
y_sums: f32[2, 3, 8, 4] = reduce dot over [r0<8]       yield y_weights * v
y: f32[2, 3, 8, 4] = pointwise                         yield y_sums * (1 / y_total)
```
Scale and mask fuse with the first product, the division with the second; maximum, exponentials and
their sum are one kernel. The gradient computes the weights again from the logarithms of their sums,
which the forward call gives. As in eager, a row of which all is masked gives zeros, and the
logarithm 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fusewright.ir.index import Index
from fusewright.ir.limits import AttentionSizes
from fusewright.ir.program import (
    Buffer,
    CallOperator,
    ComputedBuffer,
    Literal,
    Operand,
    Pointwise,
    Program,
    Reduction,
    Statement,
)
from fusewright.ir.value import Value
from fusewright.records import record
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.products import (
    Factor,
    Matrix,
    Position,
    buffer_between,
    loops_of,
    matrix_of,
    matrix_product,
    with_loops,
)

FORWARD: Final = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD: Final = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"

ARGUMENTS: Final = {
    FORWARD: ("query", "key", "value", "dropout_p", "is_causal"),
    BACKWARD: (
        *("grad_out", "query", "key", "value", "out", "logsumexp"),
        *("dropout_p", "is_causal"),
    ),
}
"""Names of arguments by position."""

Element = Callable[[Position], Value]
"""Gives the value at a position, in the type that is computed in."""


def attention_as_loops(program: Program, analysis: Analysis) -> Program:
    """Write out the calls of attention and its gradient that the kernels of their device are faster
    at.
    """
    return with_loops(program, lambda statement: _loops_of(statement, analysis))


@record(kw_only=True)
class Attention:
    """A call of attention without dropout, or of its gradient. Tensors are [batch, heads, length,
    width].
    """

    query: Matrix
    key: Matrix
    value: Matrix
    mask: Matrix | None
    """Added to the scores; [length, positions], or with batch and heads."""

    is_causal: bool
    scale: float

    gradient: Matrix | None = None
    """Of the output, in a call of the gradient."""

    output: Matrix | None = None
    logarithms: Matrix | None = None
    """Of the sums of exponentials, [batch, heads, length]."""

    @property
    def rows(self) -> tuple[Index, ...]:
        """Batch, heads and length of the query."""
        return self.query.layout.size[:3]

    @property
    def positions(self) -> Index:
        """The length of keys and values."""
        return self.key.layout.size[2]

    @property
    def scores(self) -> tuple[Index, ...]:
        """The size of the scores."""
        return (*self.rows, self.positions)


def _loops_of(statement: Statement, analysis: Analysis) -> Sequence[ComputedBuffer]:
    """The loops that take the place of a statement; nothing where it stays."""
    if not isinstance(statement, CallOperator) or statement.operator not in ARGUMENTS:
        return ()
    if not statement.outputs:  # Nothing reads its results.
        return ()
    call = _attention(statement, analysis)
    if call is None:
        return ()
    is_whole = _is_worth_it(call, analysis, is_whole=True)
    if not is_whole and not _is_worth_it(call, analysis, is_whole=False):
        return ()
    places = statement.results
    outputs = {
        place: statement.outputs[number]
        for place, number in enumerate(places)
        if number is not None
    }
    writer = _Writer(call, analysis, statement.outputs[0])
    writer.forward(outputs) if call.gradient is None else writer.backward(outputs)
    if not is_whole:
        buffers = (buffer for part in writer.statements for buffer in part.outputs)
        analysis.in_pieces.update(b.name for b in buffers if b.layout.size == call.scores)
    return writer.statements


def _attention(statement: CallOperator, analysis: Analysis) -> Attention | None:
    """The call that a statement is; None for one with dropout, with a head of keys for several of
    the query's in the gradient, or without elements.
    """
    names = ARGUMENTS[statement.operator]
    operands: dict[str, Operand] = dict(zip(names, statement.arguments, strict=False))
    operands |= dict(statement.keywords)
    dropout, is_causal = operands.get("dropout_p"), operands.get("is_causal", Literal(False))
    if dropout not in (None, Literal(0.0)) or not isinstance(is_causal, Literal):
        return None
    tensors = {
        name: matrix_of(operand, analysis)
        for name, operand in operands.items()
        if name in (*names[:-2], "attn_mask") and operand != Literal(None)
    }
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    if query is None or key is None or value is None or None in tensors.values():
        return None
    scale = operands.get("scale", Literal(None))
    *_, width = query.layout.size
    if scale == Literal(None) and width.is_constant and int(width):
        scale = Literal(1 / math.sqrt(int(width)))
    if not isinstance(scale, Literal) or not isinstance(scale.value, float):
        return None
    call = Attention(
        query=query,
        key=key,
        value=value,
        mask=tensors.get("attn_mask"),
        is_causal=bool(is_causal.value),
        scale=scale.value,
        gradient=tensors.get("grad_out"),
        output=tensors.get("out"),
        logarithms=tensors.get("logsumexp"),
    )
    return call if _fits(call) else None


def _fits(call: Attention) -> bool:
    """Whether sizes and types are such as the loops are for."""
    query, key, value = (matrix.layout for matrix in (call.query, call.key, call.value))
    if not query.dtype == key.dtype == value.dtype:
        return False
    if any(size.lower is None or size.lower < 1 for size in (*query.size, *key.size)):
        return False
    (batch, heads, _, width), (key_batch, key_heads, _, key_width) = query.size, key.size
    if value.size != key.size or batch != key_batch or width != key_width:
        return False
    if heads == key_heads:
        return True
    if call.gradient is not None or not (heads.is_constant and key_heads.is_constant):
        return False
    return int(heads) % int(key_heads) == 0


def _is_worth_it(call: Attention, analysis: Analysis, *, is_whole: bool) -> bool:
    """Whether the kernels of the device are faster than the library, and the scores need no more
    memory than is known: few rows of scores need less than the keys do. `is_whole`: all scores lie
    in memory at the same time; else kernels hand them on by blocks of rows, which those of a
    gradient cannot.
    """
    batch, heads, length, width = call.query.layout.size
    if not (length.is_constant and width.is_constant):
        return False
    is_known = all(size.is_constant for size in call.scores)
    if int(length) > int(width) and not is_known:
        return False
    limits = analysis.limits_of(call.query.layout.device)
    if not is_whole and not (limits.chains and is_known and call.gradient is None):
        return False
    return limits.attends(
        AttentionSizes(
            dtype=call.query.layout.dtype,
            batches=analysis.points((batch, heads)),
            rows=int(length),
            positions=analysis.hint(call.positions),
            width=int(width),
            is_causal=call.is_causal,
            is_whole=is_whole,
        )
    )


class _Writer:
    """Writes the loops that take the place of a call."""

    def __init__(self, call: Attention, analysis: Analysis, first: Buffer) -> None:
        """`first`: the call's first result, after which buffers are named."""
        self.call = call
        self.analysis = analysis
        self.make = analysis.expressions
        self.first = first
        self.dtype = call.query.layout.dtype.compute
        self.statements: list[ComputedBuffer] = []
        heads, key_heads = call.query.layout.size[1], call.key.layout.size[1]
        self.group = 1 if heads == key_heads else int(heads) // int(key_heads)
        """Heads of the query for one of the keys'."""

    # Calls ----------------------------------------------------------------------------------------

    def forward(self, outputs: Mapping[int, Buffer]) -> None:
        """The output (0), and the logarithms of sums of exponentials (1), where they are read."""
        call = self.call
        rows, scores = call.rows, self.scores()
        greatest = self.reduce("greatest", rows, "max", call.positions, scores)

        def is_masked(row: Position) -> Value:
            return self.make.apply("eq", greatest(row), self.constant(-math.inf))

        def exponential(at: Position) -> Value:
            highest = self.where(is_masked(at[:3]), self.constant(0.0), greatest(at[:3]))
            return self.make.apply("exp", self.make.apply("sub", scores(at), highest))

        # The sum first, so that the weights may take over the memory of the scores.
        total = self.reduce("total", rows, "sum", call.positions, exponential)
        weights = self.pointwise("weights", call.scores, exponential)

        def share(row: Position) -> Value:
            one = self.constant(1.0)
            return self.make.apply("div", one, self.where(is_masked(row), one, total(row)))

        def logarithm(row: Position) -> Value:
            value = self.make.apply("add", self.make.apply("log", total(row)), greatest(row))
            return self.where(is_masked(row), self.constant(0.0), value)

        if 0 in outputs:
            shares = self.pointwise("shares", rows, share)
            sums = self.dot(
                "sums",
                outputs[0].layout.size,
                call.positions,
                lambda at, r: weights((*at[:3], r)),
                lambda at, r: self.load(call.value, (*self.of_key(at), r, at[3])),
            )
            self.store(outputs[0], lambda at: self.times(sums(at), shares(at[:3])))
        if 1 in outputs:
            self.store(outputs[1], logarithm)

    def backward(self, outputs: Mapping[int, Buffer]) -> None:
        """The gradients of query (0), key (1) and value (2), so far as they are read."""
        call = self.call
        gradient, output, logarithms = call.gradient, call.output, call.logarithms
        assert gradient is not None and output is not None and logarithms is not None
        rows, scores = call.rows, self.scores()
        width = call.query.layout.size[3]

        def weight(at: Position) -> Value:
            logarithm = self.load(logarithms, at[:3])
            return self.make.apply("exp", self.make.apply("sub", scores(at), logarithm))

        weights = self.pointwise("weights", call.scores, weight)
        if 2 in outputs:
            self.gradient_of_keys("value", outputs[2], weights, gradient, None)
        if not {0, 1} & outputs.keys():
            return
        inner = self.reduce(
            "inner",
            rows,
            "sum",
            width,
            lambda at: self.times(self.load(gradient, at), self.load(output, at)),
        )
        products = self.dot(
            "weight_gradient",
            call.scores,
            width,
            lambda at, r: self.load(gradient, (*at[:3], r)),
            lambda at, r: self.load(call.value, (*self.of_key(at), at[3], r)),
        )
        changes = self.pointwise(
            "score_gradient",
            call.scores,
            lambda at: self.times(weights(at), self.make.apply("sub", products(at), inner(at[:3]))),
        )
        if 0 in outputs:
            sums = self.dot(
                "query_sums",
                outputs[0].layout.size,
                call.positions,
                lambda at, r: changes((*at[:3], r)),
                lambda at, r: self.load(call.key, (*self.of_key(at), r, at[3])),
            )
            self.store(outputs[0], lambda at: self.times(sums(at), self.constant(call.scale)))
        if 1 in outputs:
            self.gradient_of_keys("key", outputs[1], changes, call.query, call.scale)

    # Parts ----------------------------------------------------------------------------------------

    def scores(self) -> Element:
        """The scaled products of queries and keys, with the mask."""
        call, make = self.call, self.make
        products = self.dot(
            "product",
            call.scores,
            call.query.layout.size[3],
            lambda at, r: self.load(call.query, (*at[:3], r)),
            lambda at, r: self.load(call.key, (*self.of_key(at), at[3], r)),
        )

        def score(at: Position) -> Value:
            value = self.times(products(at), self.constant(call.scale))
            if call.mask is not None:
                value = make.apply("add", value, self.load(call.mask, at))
            if not call.is_causal:
                return value
            is_seen = make.apply("le", make.index(at[3]), make.index(at[2]))
            return self.where(is_seen, value, self.constant(-math.inf))

        return self.pointwise("scores", call.scores, score)

    def gradient_of_keys(
        self, name: str, output: Buffer, weights: Element, rows: Matrix, scale: float | None
    ) -> None:
        """A gradient of keys or values: rows of the query's length, weighted and added up, maybe
        scaled.
        """
        sums = self.dot(
            f"{name}_sums",
            output.layout.size,
            self.call.rows[2],
            lambda at, r: weights((*at[:2], r, at[2])),
            lambda at, r: self.load(rows, (*at[:2], r, at[3])),
        )
        factor = None if scale is None else self.constant(scale)
        self.store(output, lambda at: sums(at) if factor is None else self.times(sums(at), factor))

    def of_key(self, at: Position) -> Position:
        """Batch and head of the keys for those of a query."""
        return (at[0], at[1] // self.group if self.group > 1 else at[1])

    # Values ---------------------------------------------------------------------------------------

    def load(self, matrix: Matrix, at: Position) -> Value:
        return matrix.load(self.analysis, at)

    def constant(self, value: float) -> Value:
        return self.make.constant(value, self.dtype)

    def times(self, left: Value, right: Value) -> Value:
        return self.make.apply("mul", left, right)

    def where(self, condition: Value, value: Value, other: Value) -> Value:
        return self.make.apply("where", condition, value, other)

    # Statements -----------------------------------------------------------------------------------

    def dot(self, name: str, size: Position, depth: Index, left: Factor, right: Factor) -> Element:
        """A product of matrices."""
        return self._new(name, size, matrix_product(size, depth, left, right, self.analysis))

    def reduce(self, name: str, size: Position, kind: str, depth: Index, value: Element) -> Element:
        """A reduction of `value`, which is given a position and that along the reduction loop."""
        (inner,) = loops_of((depth,), "r")
        loops = loops_of(size, "i")
        at = tuple(symbol.index for symbol in (*loops, inner))
        body = Reduction(loops=loops, reduction_loops=(inner,), kind=kind, value=value(at))
        return self._new(name, size, body)

    def pointwise(self, name: str, size: Position, value: Element) -> Element:
        loops = loops_of(size, "i")
        body = Pointwise(loops=loops, value=value(tuple(symbol.index for symbol in loops)))
        return self._new(name, size, body)

    def store(self, output: Buffer, value: Element) -> None:
        """Fill a result of the call, whose type may be narrower."""
        loops = loops_of(output.layout.size, "i")
        element = value(tuple(symbol.index for symbol in loops))
        body = Pointwise(loops=loops, value=self.make.cast(element, output.layout.dtype))
        self.statements.append(ComputedBuffer(outputs=(output,), body=body))

    def _new(self, name: str, size: Position, body: Pointwise | Reduction) -> Element:
        """A buffer between the loops, filled by `body`: what reads it."""
        buffer = buffer_between(f"{self.first.name}_{name}", size, self.first, self.analysis)
        self.statements.append(ComputedBuffer(outputs=(buffer,), body=body))
        return lambda at: self.analysis.load(buffer, at)
