"""Random programs for property tests: small buffers read in every way that lowering reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import strategies as st

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, Symbol, contiguous_strides, integer, product
from fusewright.ir.program import (
    Body,
    Buffer,
    BufferReference,
    CallOperator,
    ComputedBuffer,
    CopyBack,
    Layout,
    Pointwise,
    Program,
    Reduction,
    Scatter,
    Statement,
)
from fusewright.ir.sizes import SizeFact, size_symbol
from fusewright.ir.value import Expressions, Value

UNARY = ("neg", "exp", "tanh")
BINARY = ("add", "sub", "mul", "maximum")
EXTENTS = (1, 2, 3, 4, 6)


@dataclass
class Builder:
    """A program while it is made; `draw` is Hypothesis's."""

    draw: st.DrawFn
    expressions: Expressions = field(default_factory=Expressions)
    buffers: list[Buffer] = field(default_factory=list)
    """Those that later statements may read."""

    statements: list[Statement] = field(default_factory=list)
    sizes: tuple[SizeFact, ...] = ()
    joined: int = 0
    """How many of a hundred values are two halves along a loop."""

    count: int = 0

    def pick(self, options):
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    # Buffers --------------------------------------------------------------------------------------

    def shape(self) -> tuple[Index, ...]:
        extents = [integer(e) for e in EXTENTS] + [fact.symbol.index for fact in self.sizes]
        return tuple(self.pick(extents) for _ in range(self.draw(st.integers(0, 3))))

    def buffer(self, prefix: str, shape: tuple[Index, ...]) -> Buffer:
        """Contiguous, or dense with dimensions in another order."""
        self.count += 1
        order = self.draw(st.permutations(range(len(shape)))) if self.chance(30) else None
        strides = contiguous_strides(shape)
        if order is not None:
            permuted = contiguous_strides([shape[k] for k in order])
            strides = tuple(permuted[order.index(k)] for k in range(len(shape)))
        layout = Layout(dtype=DType.F32, size=shape, stride=strides)
        return Buffer(name=f"{prefix}{self.count}", layout=layout)

    # Values ---------------------------------------------------------------------------------------

    def load(self, loops: tuple[Symbol, ...]) -> Value:
        buffer = self.pick(self.buffers[-4:] if self.chance(70) else self.buffers)
        layout = buffer.layout
        whole = product(layout.size)
        if whole == product(s.extent for s in loops) and layout.is_contiguous and self.chance(30):
            strides = contiguous_strides([s.extent for s in loops])
            flat = sum((s.index * k for s, k in zip(loops, strides, strict=True)), integer(0))
            return self.expressions.load(buffer.name, flat, DType.F32)
        free = list(loops)
        place = []
        for size in layout.size:
            same = [s for s in free if s.extent == size]
            chosen = None
            if same and not self.chance(10):
                chosen = same[0] if self.chance(80) else self.pick(same)
                free.remove(chosen)
            place.append(self.position(chosen, size, loops))
        return self.expressions.load(buffer.name, layout.index(tuple(place)), DType.F32)

    def position(self, chosen: Symbol | None, size: Index, loops: tuple[Symbol, ...]) -> Index:
        """An index in `[0, size)`."""
        if chosen is not None:
            return size - 1 - chosen.index if self.chance(5) else chosen.index
        if size == 0 or not size.is_constant:
            return integer(0)
        shorter = [s for s in loops if s.extent.is_constant and 0 < int(s.extent) <= int(size)]
        if shorter and self.chance(50):
            symbol = self.pick(shorter)
            return symbol.index + self.draw(st.integers(0, int(size) - int(symbol.extent)))
        return integer(self.draw(st.integers(0, int(size) - 1)))

    def value(self, loops: tuple[Symbol, ...], depth: int = 0) -> Value:
        make = self.expressions
        if depth < 2 and loops and self.joined and self.chance(self.joined):
            return self.halves(loops, depth)
        roll = self.draw(st.integers(0, 99))
        if depth > 2 or roll < 30:
            return self.load(loops)
        if roll < 50:
            return make.apply(self.pick(UNARY), self.value(loops, depth + 1))
        if roll < 54:
            return make.constant(self.draw(st.integers(-3, 3)), DType.F32)
        if roll < 58 and loops:
            mask = make.apply("lt", make.index(self.pick(loops)), make.constant(2, DType.I64))
            return make.masked(mask, self.value(loops, depth + 1), 0.5)
        if roll < 62 and loops:
            return make.cast(make.index(self.pick(loops)), DType.F32)
        return make.apply(
            self.pick(BINARY), self.value(loops, depth + 1), self.value(loops, depth + 1)
        )

    def halves(self, loops: tuple[Symbol, ...], depth: int) -> Value:
        """A value up to the middle of a loop, and another one from there on."""
        make, loop = self.expressions, self.pick(loops)
        place, middle = make.index(loop), make.index(loop.extent // 2)
        first = make.masked(make.apply("lt", place, middle), self.value(loops, depth + 1), 0)
        second = make.masked(make.apply("ge", place, middle), self.value(loops, depth + 1), 0)
        return make.apply("where", make.apply("lt", place, middle), first, second)

    # Statements -----------------------------------------------------------------------------------

    def statement(self) -> None:
        roll = self.draw(st.integers(0, 99))
        if roll < 50:
            self.compute(self.like(), (), "")
        elif roll < 85:
            kind = self.pick(("sum", "max", "sum", "argmax", "welford"))
            shape = self.like() or (integer(3),)
            kept = 0 if self.chance(30) else len(shape) - 1
            self.compute(shape[:kept], shape[kept:], kind)
        elif roll < 89:
            self.softmax()
        elif roll < 95:
            buffer = self.buffer("e", self.shape())
            reads = tuple(BufferReference(self.pick(self.buffers).name) for _ in range(2))
            call = CallOperator(outputs=(buffer,), operator="test.mean.default", arguments=reads)
            self.statements.append(call)
            self.buffers.append(buffer)
        else:
            self.scatter()

    def like(self) -> tuple[Index, ...]:
        """The shape of a buffer that exists, maybe permuted, flattened or split, or a new one."""
        shape = self.shape() if self.chance(20) else self.pick(self.buffers).layout.size
        roll = self.draw(st.integers(0, 99))
        if roll < 20:
            return tuple(self.draw(st.permutations(shape)))
        if roll < 30:
            return (product(shape),)
        if roll < 40 and shape and shape[-1] == 6:
            return (*shape[:-1], integer(2), integer(3))
        return shape

    def compute(self, shape: tuple[Index, ...], over: tuple[Index, ...], kind: str) -> None:
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        inner = tuple(LoopSymbol(f"r{k}", extent) for k, extent in enumerate(over))
        value = self.value((*loops, *inner))
        outputs = tuple(self.buffer("b", shape) for _ in range(2 if kind == "welford" else 1))
        body: Body = Pointwise(loops=loops, value=value)
        if kind == "argmax":
            layout = Layout(dtype=DType.I64, size=shape, stride=outputs[0].layout.stride)
            outputs = (Buffer(name=outputs[0].name, layout=layout),)
        if kind:
            body = Reduction(loops=loops, reduction_loops=inner, kind=kind, value=value)
        self.statements.append(ComputedBuffer(outputs=outputs, body=body))
        if kind != "argmax":
            self.buffers.extend(outputs)

    def softmax(self) -> None:
        """Over the last dimension of a buffer: exponentials are needed twice."""
        buffer = self.pick(self.buffers)
        shape = buffer.layout.size or (integer(1),)
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        inner = (LoopSymbol("r0", shape[-1]),)
        make = self.expressions

        def read(name: str, layout: Layout, symbols: tuple[Symbol, ...]) -> Value:
            place = tuple(s.index for s in symbols[: len(layout.size)])
            return make.load(name, layout.index(place), DType.F32)

        def compute(size: tuple[Index, ...], body: Body) -> Buffer:
            made = self.buffer("m", size)
            self.statements.append(ComputedBuffer(outputs=(made,), body=body))
            self.buffers.append(made)
            return made

        within = (*loops[:-1], *inner)
        rows = loops[:-1]
        load = read(buffer.name, buffer.layout, within)
        most = compute(
            shape[:-1], Reduction(loops=rows, reduction_loops=inner, kind="max", value=load)
        )
        shifted = make.apply(
            "sub",
            read(buffer.name, buffer.layout, loops),
            read(most.name, most.layout, rows),
        )
        powers = compute(shape, Pointwise(loops=loops, value=make.apply("exp", shifted)))
        load = read(powers.name, powers.layout, within)
        total = compute(
            shape[:-1], Reduction(loops=rows, reduction_loops=inner, kind="sum", value=load)
        )
        value = make.apply(
            "div", read(powers.name, powers.layout, loops), read(total.name, total.layout, rows)
        )
        compute(shape, Pointwise(loops=loops, value=value))

    def scatter(self) -> None:
        """Into a fresh copy, which nobody else reads."""
        shape = (integer(4), integer(3))
        loops = (LoopSymbol("i0", 4), LoopSymbol("i1", 3))
        base, result = (
            Buffer(
                name=f"s{self.count + k}",
                layout=Layout(dtype=DType.F32, size=shape, stride=contiguous_strides(shape)),
            )
            for k in (1, 2)
        )
        self.count += 2
        initial = Pointwise(loops=loops, value=self.value(loops))
        self.statements.append(ComputedBuffer(outputs=(base,), body=initial))
        row = self.expressions.cast(
            self.expressions.apply(
                "lt", self.load((loops[0],)), self.expressions.constant(0.0, DType.F32)
            ),
            DType.I64,
        )
        index = self.expressions.indirect(row, 4) * 3 + loops[1].index
        behind = self.expressions.behind(index)
        value = self.value(loops)
        body = Scatter(
            loops=loops, base=base.name, index=index, indirect=behind, mode="add", value=value
        )
        self.statements.append(ComputedBuffer(outputs=(result,), body=body))
        self.buffers.append(result)


@st.composite
def programs(draw: st.DrawFn, symbolic: bool = False, joined: int = 0) -> Program:
    """A program with one to four inputs and up to ten statements; with sizes s0 = 6, s1 = 4 when
    symbolic. `joined`: how many of a hundred values are halves, one behind the other.
    """
    builder = Builder(draw, joined=joined)
    if symbolic:
        s0, s1 = size_symbol("s0"), size_symbol("s1", multiple=2)
        builder.sizes = (SizeFact(s0, 6), SizeFact(s1, 4))
    for _ in range(draw(st.integers(1, 4))):
        builder.buffers.append(builder.buffer("x", builder.shape()))
    inputs = tuple(builder.buffers)
    for _ in range(draw(st.integers(1, 10))):
        builder.statement()
    made = builder.buffers[len(inputs) :]
    extra = [s.outputs[0] for s in builder.statements if s.outputs[0] not in made]
    outputs = [b for b in made if builder.chance(30)] or made[-1:]
    outputs += [b for b in extra if b.layout.dtype is DType.I64]
    copies = []
    for buffer in inputs:
        same = [b for b in made if b.layout == buffer.layout]
        if same and builder.chance(30):
            copies.append(CopyBack(target=buffer.name, source=BufferReference(same[-1].name)))
    return Program(
        name="random",
        inputs=inputs,
        sizes=builder.sizes,
        statements=(*builder.statements, *copies),
        outputs=tuple(BufferReference(b.name) for b in outputs),
        expressions=builder.expressions,
    )


def inputs_of(program: Program) -> dict[str, list[float]]:
    """Some numbers for each input; the same for equal programs."""
    hints = {fact.symbol.name: fact.hint for fact in program.sizes}
    data: dict[str, list[float]] = {}
    for number, buffer in enumerate(program.inputs):
        count = math.prod(size.evaluate(hints) for size in buffer.layout.size)
        data[buffer.name] = [math.sin(7.0 * number + 1.3 * k) for k in range(count)]
    return data
