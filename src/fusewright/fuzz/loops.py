"""Random programs of the loop IR, and a check that their machine code computes what they say.

    program = generate(Random(7))
    wrong = check(program, seed=7)      # None, or what differs

Programs are made to be hard on fusion and on the emitters: loops that share few extents, mostly
under a vector's width, so that statements fuse at other depths of their loops; reads that are
shifted, reversed, divided, masked or indirect; reductions, scans, softmax, scatters, calls.

Most values are small integers, whatever their type, on which arithmetic is exact in any order: what
is compared has to be equal to the last bit, and positions of extremes are certain. Values that are
rounded (`inexact`) are compared with a tolerance, and nothing is decided by them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, TypeVar

import torch

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.dtype import DType
from fusewright.ir.forms import buffers_defined, buffers_overwritten, buffers_read
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
    Scan,
    Scatter,
    Statement,
    operand_buffers,
)
from fusewright.ir.reference import evaluate
from fusewright.ir.sizes import SizeFact, size_symbol
from fusewright.ir.value import Expressions, Load, Value, postorder
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.kernels import define_kernels
from fusewright.records import replace
from fusewright.runtime.loader import load_module
from fusewright.runtime.memory_checks import GARBAGE
from fusewright.schedule import schedule
from fusewright.wrapper import emit_python, generate_lines, plan_memory

EXTENTS: Final = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 13, 16, 17, 33, 64, 70)
MOST_POINTS: Final = 20_000
"""Points of one statement's loops, about."""

STORED: Final = (DType.F32,) * 6 + (
    DType.F64, DType.F16, DType.BF16, DType.I64, DType.I64, DType.I32, DType.U8, DType.BOOL,
)  # fmt: skip
"""Types of buffers."""

LARGEST: Final = 8
"""The magnitude to which values of statements are limited, so that products stay exact."""

TARGETS: Final = ("auto", "avx2", "scalar")

Item = TypeVar("Item")


def generate(random: Random) -> Program:
    """A legal program of one to four inputs and up to ten statements."""
    return _Generator(random).program()


class _Generator:
    """A program while it is made."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.make = Expressions()
        self.buffers: list[Buffer] = []
        """Buffers that later statements may read."""

        self.statements: list[Statement] = []
        self.inexact: set[str] = set()
        """Buffers whose elements are rounded."""

        self.unlimited: set[str] = set()
        """Buffers whose elements may be larger than `LARGEST`."""

        self.shared: list[tuple[Value, bool]] = []
        """Values of the statement being made, and whether they are exact: some are used again,
        under other masks.
        """

        self.count = 0
        self.sizes: tuple[SizeFact, ...] = ()
        if self.chance(30):
            first = SizeFact(size_symbol("s0"), self.pick((2, 5, 17)))
            second = SizeFact(size_symbol("s1", multiple=2), self.pick((4, 16, 34)))
            self.sizes = (first, second) if self.chance(50) else (first,)
        self.extents = [integer(self.pick(EXTENTS)) for _ in range(self.pick((1, 1, 2, 3)))]
        self.extents += [fact.symbol.index for fact in self.sizes]

    def pick(self, options: Sequence[Item]) -> Item:
        return self.random.choice(options)

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent

    def program(self) -> Program:
        for _ in range(self.random.randint(1, 4)):
            self.buffers.append(self.buffer("x", self.shape(), self.pick(STORED)))
        inputs = tuple(self.buffers)
        for _ in range(self.random.randint(1, 10)):
            self.statement()
        computed = self.buffers[len(inputs) :]
        outputs = [buffer for buffer in computed if self.chance(40)] or computed[-1:]
        copies: list[CopyBack] = []
        mutations: list[tuple[str, str]] = []
        for buffer in inputs:
            same = [b for b in outputs if b.layout == buffer.layout]
            if same and self.chance(40):
                source = self.pick(same)
                if self.chance(50):
                    copies.append(CopyBack(target=buffer.name, source=BufferReference(source.name)))
                elif source.name not in dict(mutations):
                    mutations.append((source.name, buffer.name))
        return Program(
            name="random",
            inputs=inputs,
            sizes=self.sizes,
            statements=(*self.statements, *copies),
            outputs=tuple(BufferReference(b.name) for b in outputs),
            mutations=tuple(mutations),
            expressions=self.make,
        )

    # Buffers --------------------------------------------------------------------------------------

    def shape(self) -> tuple[Index, ...]:
        shape = tuple(self.pick(self.extents) for _ in range(self.pick((0, 1, 1, 1, 2, 2, 3))))
        return shape if self.points(shape) <= MOST_POINTS else shape[:1]

    def points(self, shape: Sequence[Index]) -> int:
        hints = {fact.symbol.name: fact.hint for fact in self.sizes}
        return product(shape).evaluate(hints)

    def buffer(self, prefix: str, shape: tuple[Index, ...], dtype: DType) -> Buffer:
        """Contiguous, or dense with dimensions in another order."""
        self.count += 1
        strides = contiguous_strides(shape)
        if self.chance(25):
            order = self.random.sample(range(len(shape)), len(shape))
            permuted = contiguous_strides([shape[k] for k in order])
            strides = tuple(permuted[order.index(k)] for k in range(len(shape)))
        layout = Layout(dtype=dtype, size=shape, stride=strides)
        return Buffer(name=f"{prefix}{self.count}", layout=layout)

    # Values ---------------------------------------------------------------------------------------

    def constant(self, value: int, dtype: DType) -> Value:
        return self.make.constant(value, dtype)

    def converted(self, value: Value, dtype: DType) -> Value:
        """`value`, of numbers up to `LARGEST`, in another type: a half type computes in f32."""
        make = self.make
        if value.dtype is dtype:
            return value
        if value.dtype.compute is not value.dtype:
            value = make.cast(value, value.dtype.compute)
        if dtype is DType.U8 and value.dtype is not DType.BOOL:
            value = make.apply("abs", value)
        return make.cast(value, dtype)

    def limited(self, value: Value) -> Value:
        """`value` with its magnitude limited to `LARGEST`."""
        if value.dtype is DType.BOOL:
            return value
        low = 0 if value.dtype is DType.U8 else -LARGEST
        value = self.make.apply("maximum", value, self.constant(low, value.dtype))
        return self.make.apply("minimum", value, self.constant(LARGEST, value.dtype))

    def load(self, loops: tuple[LoopSymbol, ...], dtype: DType, *, exact: bool) -> Value:
        """An element of some buffer, as a number of `dtype`."""
        candidates = [b for b in self.buffers if not (exact and b.name in self.inexact)]
        if not candidates:
            return self.converted(self.make.index(loops[0].index % 3 if loops else 1), dtype)
        buffer = self.pick(candidates[-4:] if self.chance(70) else candidates)
        return self.element(buffer, loops, dtype)

    def element(self, buffer: Buffer, loops: tuple[LoopSymbol, ...], dtype: DType) -> Value:
        """An element of `buffer`, as a number of `dtype`."""
        layout, make = buffer.layout, self.make
        masks: list[Value] = []
        whole = product(layout.size) == product(s.extent for s in loops)
        if whole and layout.is_contiguous and self.chance(25):
            strides = contiguous_strides([s.extent for s in loops])
            place = sum((s.index * k for s, k in zip(loops, strides, strict=True)), integer(0))
        else:
            free = list(loops)
            position = tuple(self.position(size, free, loops, masks) for size in layout.size)
            place = layout.index(position)
        value = make.load(buffer.name, place, layout.dtype)
        if layout.dtype.compute is not layout.dtype:
            value = make.cast(value, layout.dtype.compute)
        if buffer.name in self.unlimited:
            value = self.limited(value)
        value = self.converted(value, dtype)
        for mask in masks:
            value = make.masked(mask, value, self.random.randint(0, 3))
        return value

    def position(
        self, size: Index, free: list[LoopSymbol], loops: tuple[LoopSymbol, ...], masks: list[Value]
    ) -> Index:
        """An index in `[0, size)`, or anywhere under masks that are added to `masks`."""
        same = [s for s in free if s.extent == size]
        if same and not self.chance(12):
            chosen = same[0] if self.chance(75) else self.pick(same)
            free.remove(chosen)
            return size - 1 - chosen.index if self.chance(8) else chosen.index
        if self.chance(20):
            return self.indirect(size, loops)
        if loops and self.chance(25):
            return self.shifted(size, self.pick(loops), masks)
        if not size.is_constant:
            return self.pick((integer(0), integer(1), size - 1))
        extents = {s: int(s.extent) for s in loops if s.extent.is_constant}
        fitting = [s for s, extent in extents.items() if 0 < extent <= int(size)]
        if fitting and self.chance(50):
            symbol = self.pick(fitting)
            return symbol.index + self.random.randint(0, int(size) - extents[symbol])
        if loops and self.chance(60):
            symbol = self.pick(loops)
            divisor = self.random.randint(1, int(size))
            if self.chance(60) or symbol not in extents:
                return symbol.index % divisor
            return symbol.index // -(-extents[symbol] // int(size))
        return integer(self.random.randint(0, int(size) - 1))

    def shifted(self, size: Index, symbol: Symbol, masks: list[Value]) -> Index:
        """A loop variable, moved and stretched, under a mask that it lies in `[0, size)`."""
        make = self.make
        place = symbol.index * self.pick((1, 1, 1, 2)) - self.random.randint(-2, 3)
        masks.append(make.apply("ge", make.index(place), make.constant(0, DType.I64)))
        masks.append(make.apply("lt", make.index(place), make.index(size)))
        return place

    def indirect(self, size: Index, loops: tuple[LoopSymbol, ...]) -> Index:
        """A loaded index: a number brought into `[0, size)`, or from the end."""
        make = self.make
        value = self.load(loops, DType.I64, exact=True)
        limit = make.index(size)
        value = make.apply("remainder", value, limit)
        wrap = self.chance(60)
        if wrap and self.chance(50):
            value = make.apply("sub", value, limit)
        return make.indirect(value, size, wrap=wrap, check=self.chance(60))

    def value(
        self, loops: tuple[LoopSymbol, ...], dtype: DType, *, exact: bool, depth: int = 0
    ) -> Value:
        """A number of `dtype`, which is no half type."""
        candidates = [v for v, is_exact in self.shared if v.dtype is dtype and is_exact >= exact]
        if candidates and self.chance(15):
            return self.pick(candidates)
        value = self.new_value(loops, dtype, exact=exact, depth=depth)
        self.shared.append((value, exact))
        return value

    def new_value(
        self, loops: tuple[LoopSymbol, ...], dtype: DType, *, exact: bool, depth: int
    ) -> Value:
        make = self.make
        roll = self.random.randint(0, 99)
        if dtype is DType.BOOL:
            return self.condition(loops, depth)
        if depth > 2 or roll < 30:
            return self.load(loops, dtype, exact=exact)
        if roll < 36:
            return self.constant(self.random.randint(0 if dtype is DType.U8 else -3, 3), dtype)
        if roll < 42 and loops:
            return self.converted(make.index(self.pick(loops).index % self.pick((2, 3, 5))), dtype)
        inner = self.value(loops, dtype, exact=exact, depth=depth + 1)
        if roll < 48:
            mask = self.condition(loops, depth + 1)
            return make.masked(mask, inner, self.random.randint(0, 3))
        if roll < 58:
            other = self.value(loops, dtype, exact=exact, depth=depth + 1)
            return make.apply("where", self.condition(loops, depth + 1), inner, other)
        if roll < 70:
            if dtype.is_float and not exact:
                return make.apply(self.pick(("exp", "tanh", "sigmoid", "sin")), inner)
            unary = ["abs"] if dtype is DType.U8 else ["neg", "abs", "sign"]
            return make.apply(self.pick(unary), inner)
        names = ["add", "maximum", "minimum"]
        if dtype is not DType.U8:
            names += ["sub", "mul"] if depth else ["sub"]
        other = self.value(loops, dtype, exact=exact, depth=depth + 1)
        return make.apply(self.pick(names), inner, other)

    def condition(self, loops: tuple[LoopSymbol, ...], depth: int) -> Value:
        """A bool; of loop variables, or of numbers that are exact."""
        make = self.make
        roll = self.random.randint(0, 99)
        if loops and roll < 50:
            left: Value = make.index(self.pick(loops))
            right = make.constant(self.pick((1, 2, 3, 16)), DType.I64)
            if self.chance(40):
                right = make.index(self.pick(loops))
        else:
            dtype = self.pick((DType.F32, DType.I64, DType.I32, DType.F64))
            depth = max(depth, 2)
            left = self.value(loops, dtype, exact=True, depth=depth)
            right = self.value(loops, dtype, exact=True, depth=depth)
        result = make.apply(self.pick(("lt", "le", "gt", "eq", "ne")), left, right)
        if depth < 2 and roll % 4 == 0:
            other = self.condition(loops, depth + 1)
            result = make.apply(self.pick(("bitwise_and", "bitwise_or")), result, other)
        return make.apply("bitwise_not", result) if roll % 7 == 0 else result

    # Statements -----------------------------------------------------------------------------------

    def statement(self) -> None:
        self.shared.clear()
        roll = self.random.randint(0, 99)
        if roll < 50:
            self.pointwise(self.like())
        elif roll < 76:
            self.reduction()
        elif roll < 84:
            self.scan()
        elif roll < 89:
            self.softmax()
        elif roll < 94:
            self.library_call()
        else:
            self.scatter()

    def like(self) -> tuple[Index, ...]:
        """The shape of a buffer that exists, maybe permuted, flattened or with a new dimension."""
        shape = self.shape() if self.chance(30) else self.pick(self.buffers).layout.size
        roll = self.random.randint(0, 99)
        if roll < 15:
            return tuple(self.random.sample(shape, len(shape)))
        if roll < 22:
            return (product(shape),)
        if roll < 35 and len(shape) < 3:
            wider = (*shape, self.pick(self.extents))
            return wider if self.points(wider) <= MOST_POINTS else shape
        return shape

    def define(self, shape: tuple[Index, ...], dtype: DType, body: Body, *, exact: bool) -> Buffer:
        buffer = self.buffer("b", shape, dtype)
        self.statements.append(ComputedBuffer(outputs=(buffer,), body=body))
        self.buffers.append(buffer)
        if not exact:
            self.inexact.add(buffer.name)
        return buffer

    def pointwise(self, shape: tuple[Index, ...]) -> Buffer:
        dtype = self.pick(STORED)
        exact = not dtype.is_float or self.chance(80)
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        value = self.limited(self.value(loops, dtype.compute, exact=exact))
        if dtype is not value.dtype:
            value = self.make.cast(value, dtype)
        return self.define(shape, dtype, Pointwise(loops=loops, value=value), exact=exact)

    def reduction(self) -> None:
        shape = self.like() or (self.pick(self.extents),)
        over = {k for k in range(len(shape)) if self.chance(30)}
        over = over or {self.pick((0, len(shape) - 1, len(shape) - 1))}
        if self.chance(30):
            over = set(range(len(shape)))
        kept = tuple(extent for k, extent in enumerate(shape) if k not in over)
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(kept))
        inner = tuple(LoopSymbol(f"r{n}", shape[k]) for n, k in enumerate(sorted(over)))
        points = (*loops, *inner)
        kind = self.pick(("sum", "sum", "max", "min", "argmax", "argmin", "prod", "any", "welford"))
        exact = kind != "welford" and (kind not in ("sum", "max") or self.chance(80))
        dtype = self.pick((DType.F32, DType.F32, DType.F64, DType.I64, DType.I32))
        if not exact:
            dtype = self.pick((DType.F32, DType.F64))
        if kind == "any":
            dtype, kind = DType.BOOL, self.pick(("any", "all"))
        if kind == "prod":
            value = self.make.apply("sign", self.value(points, dtype, exact=True, depth=1))
        else:
            value = self.limited(self.value(points, dtype, exact=exact))
        body = Reduction(loops=loops, reduction_loops=inner, kind=kind, value=value)
        if kind == "welford":
            outputs = tuple(self.buffer("b", kept, dtype) for _ in range(2))
            self.statements.append(ComputedBuffer(outputs=outputs, body=body))
            self.buffers += outputs
            self.inexact.update(buffer.name for buffer in outputs)
            self.unlimited.update(buffer.name for buffer in outputs)
            return
        result = DType.I64 if kind.startswith("arg") else dtype
        self.unlimited.add(self.define(kept, result, body, exact=exact).name)

    def scan(self) -> None:
        """Along one dimension, in the type of its values, held in that or in another."""
        shape = self.like() or (self.pick(self.extents),)
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        kind = self.pick(("sum", "sum", "max", "min", "prod", "logsumexp"))
        exact = kind != "logsumexp"
        dtype = self.pick((DType.F32, DType.F64, *((DType.I64, DType.I32) if exact else ())))
        value = self.value(loops, dtype, exact=exact, depth=1)
        value = self.make.apply("sign", value) if kind == "prod" else self.limited(value)
        held = dtype
        if dtype.is_float:
            held = self.pick((dtype, DType.F32, DType.F64, DType.F16, DType.BF16))
        body = Scan(loops=loops, along=self.pick((*loops, loops[-1])), kind=kind, value=value)
        self.unlimited.add(self.define(shape, held, body, exact=exact).name)

    def softmax(self) -> None:
        """Over the last dimension of a buffer: exponentials are needed twice."""
        buffer = self.pick(self.buffers)
        shape = buffer.layout.size or (integer(1),)
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        rows, inner = loops[:-1], (LoopSymbol("r0", shape[-1]),)
        within = (*rows, *inner)
        make = self.make

        def read(source: Buffer, symbols: tuple[LoopSymbol, ...]) -> Value:
            place = tuple(s.index for s in symbols[: len(source.layout.size)])
            value = make.load(source.name, source.layout.index(place), source.layout.dtype)
            return make.cast(value, DType.F32)

        def compute(size: tuple[Index, ...], body: Body) -> Buffer:
            return self.define(size, DType.F32, body, exact=False)

        def reduced(kind: str, value: Value) -> Body:
            return Reduction(loops=rows, reduction_loops=inner, kind=kind, value=value)

        most = compute(shape[:-1], reduced("max", read(buffer, within)))
        shifted = make.apply("sub", read(buffer, loops), read(most, rows))
        powers = compute(shape, Pointwise(loops=loops, value=make.apply("exp", shifted)))
        total = compute(shape[:-1], reduced("sum", read(powers, within)))
        quotient = make.apply("div", read(powers, loops), read(total, rows))
        compute(shape, Pointwise(loops=loops, value=quotient))
        self.unlimited.update((most.name, total.name))

    def library_call(self) -> None:
        source = self.pick(self.buffers)
        if not source.layout.is_contiguous or source.layout.dtype in (DType.BOOL, DType.U8):
            source = self.pointwise_contiguous(source.layout.size)
        buffer = Buffer(name=f"e{self.count + 1}", layout=source.layout)
        self.count += 1
        operator = self.pick(("neg", "abs"))
        self.statements.append(
            CallOperator(
                outputs=(buffer,),
                operator=f"aten.{operator}.default",
                arguments=(BufferReference(source.name),),
                out_operator=f"aten.{operator}.out" if self.chance(50) else "",
            )
        )
        self.buffers.append(buffer)
        for names in (self.inexact, self.unlimited):
            if source.name in names:
                names.add(buffer.name)

    def pointwise_contiguous(self, shape: tuple[Index, ...], dtype: DType = DType.F32) -> Buffer:
        loops = tuple(LoopSymbol(f"i{k}", extent) for k, extent in enumerate(shape))
        value = self.limited(self.value(loops, dtype, exact=True))
        self.count += 1
        layout = Layout(dtype=dtype, size=shape, stride=contiguous_strides(shape))
        buffer = Buffer(name=f"b{self.count}", layout=layout)
        body = Pointwise(loops=loops, value=value)
        self.statements.append(ComputedBuffer(outputs=(buffer,), body=body))
        self.buffers.append(buffer)
        return buffer

    def scatter(self) -> None:
        """Into a fresh buffer, which nobody else reads; along some dimensions loaded indices choose
        the place, so that points meet.
        """
        shape = self.shape() or (self.pick(self.extents),)
        dtype = self.pick((DType.F32, DType.F32, DType.F64, DType.I64, DType.I32))
        base = self.pointwise_contiguous(shape, dtype)
        self.buffers.remove(base)
        self.shared.clear()
        loaded = {k for k in range(len(shape)) if self.chance(50)} or {self.pick(range(len(shape)))}
        extents = [None if k in loaded else size for k, size in enumerate(shape)]
        more = [self.pick(self.extents) for _ in range(self.pick((0, 1, 1, 2)))]
        own = [size for size in extents if size is not None]
        if self.points((*own, *more)) > MOST_POINTS:
            more = more[:1]
        order = self.random.sample(range(len(own) + len(more)), len(own) + len(more))
        loops = [LoopSymbol(f"i{order[k]}", size) for k, size in enumerate((*own, *more))]
        around = tuple(sorted(loops, key=lambda symbol: symbol.name))
        following = iter(loops)
        place = tuple(
            self.indirect(size, around) if k in loaded else next(following).index
            for k, size in enumerate(shape)
        )
        index = base.layout.index(place)
        result = Buffer(name=f"b{self.count + 1}", layout=base.layout)
        self.count += 1
        body = Scatter(
            loops=around,
            base=base.name,
            index=index,
            indirect=self.make.behind(index),
            mode=self.pick(("add", "add", "min", "max", "store")),
            value=self.limited(self.value(around, dtype, exact=True)),
        )
        self.statements.append(ComputedBuffer(outputs=(result,), body=body))
        self.buffers.append(result)
        self.unlimited.add(result.name)


# Checking -----------------------------------------------------------------------------------------


def check(
    program: Program, seed: int = 0, targets: Sequence[str] = TARGETS, *, tune: bool = False
) -> str | None:
    """The faults of the code that `program` is compiled to: in its text, when it is compiled, or in
    its results for inputs made from `seed`, on memory filled with garbage. None: nothing.
    """
    sizes = {fact.symbol.name: int(fact.hint) for fact in program.sizes}
    inputs = inputs_of(program, Random(seed))
    constants: dict[str, torch.Tensor] = {}
    reference = [tensor.clone() for tensor in inputs]
    wanted = evaluate(program, reference, sizes=sizes, constants=constants)
    copied = {s.target for s in program.statements if isinstance(s, CopyBack)}
    tolerant = _inexact(program)
    for target in targets:
        arguments = [tensor.clone() for tensor in inputs]
        try:
            results = run(program, [*sizes.values(), *arguments], target, tune=tune)
        except Exception as error:  # Whatever it is, a legal program has met it.
            return f"{target}: {type(error).__name__}: {error}"
        pairs = list(zip(operand_buffers(program.outputs), results, wanted, strict=True))
        names = [buffer.name for buffer in program.inputs]
        pairs += [p for p in zip(names, arguments, reference, strict=True) if p[0] in copied]
        for name, result, expected in pairs:
            difference = _difference(result, expected, exact=name not in tolerant)
            if difference:
                return f"{target}: {name}: {difference}"
    return None


def run(
    program: Program, arguments: list[Any], target: str, *, tune: bool = False
) -> Sequence[torch.Tensor]:
    """The results of the program's machine code; memory is garbage before it is written. `tune`:
    kernels are tuned.
    """
    context = CompileContext(options=Options(verify=True, kernel_target=target, tune=tune))
    verify_program(program)
    planned = schedule(program, context)
    verify_schedule(planned)
    kernels = define_kernels(planned, context)
    lines = generate_lines(planned, kernels.definitions, kernels.launches)
    text = emit_python(program.name, plan_memory(lines, program.hints))
    before = os.environ.get(GARBAGE)
    os.environ[GARBAGE] = "1"
    try:
        results: Any = load_module(text, {}).call(arguments)
    finally:
        if before is None:
            del os.environ[GARBAGE]
        else:
            os.environ[GARBAGE] = before
    return list(results)


def inputs_of(program: Program, random: Random) -> list[torch.Tensor]:
    """Small integers, laid out and typed as the program's inputs."""
    sizes = {fact.symbol.name: int(fact.hint) for fact in program.sizes}
    tensors = []
    for buffer in program.inputs:
        layout = buffer.layout
        low = 0 if layout.dtype in (DType.U8, DType.BOOL) else -LARGEST
        high = 1 if layout.dtype is DType.BOOL else LARGEST
        shape = [size.evaluate(sizes) for size in layout.size]
        stride = [step.evaluate(sizes) for step in layout.stride]
        numbers = [random.randint(low, high) for _ in range(math.prod(shape))]
        tensor = torch.empty_strided(shape, stride, dtype=getattr(torch, layout.dtype.torch_name))
        tensors.append(tensor.copy_(torch.tensor(numbers).reshape(shape)))
    return tensors


ROUNDED: Final = frozenset(("exp", "tanh", "sigmoid", "sin", "div"))
"""Operations that round small integers."""


def _inexact(program: Program) -> set[str]:
    """Buffers whose elements are rounded, or made from such elements."""
    names: set[str] = set()
    for statement in program.statements:
        if isinstance(statement, ComputedBuffer):
            body = statement.body
            nodes = list(postorder((body.value,)))
            rounds = isinstance(body, Reduction | Scan) and body.kind in ("welford", "logsumexp")
            rounds |= any(getattr(node, "operation", "") in ROUNDED for node in nodes)
            if rounds or any(isinstance(n, Load) and n.buffer in names for n in nodes):
                names.update(buffer.name for buffer in statement.outputs)
        elif names.intersection(buffers_read(statement)):
            names.update((*buffers_defined(statement), *buffers_overwritten(statement)))
    return names


def _difference(result: Any, expected: Any, *, exact: bool) -> str | None:
    """How two tensors differ."""
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return f"{result.dtype}{tuple(result.shape)}, not {expected.dtype}{tuple(expected.shape)}"
    tolerance = 0.0 if exact else 0.02 if result.element_size() == 2 else 2e-4
    close = torch.isclose(
        result.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )
    if bool(close.all()):
        return None
    place = tuple((~close).nonzero()[0].tolist())
    wrong = int((~close).sum())
    return f"{wrong} of {close.numel()}, at {place} {result[place]}, not {expected[place]}"


def smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, which may show the same: with one output, or without the copies
    and mutations, or without a statement that nobody reads.
    """
    if len(program.outputs) > 1:
        for output in program.outputs:
            kept = tuple(pair for pair in program.mutations if pair[0] in operand_buffers([output]))
            yield replace(program, outputs=(output,), mutations=kept)
    if program.mutations:
        yield replace(program, mutations=())
    read = set(operand_buffers(program.outputs))
    for statement in reversed(program.statements):
        match statement:
            case ComputedBuffer(outputs=outputs, body=body):
                roots = (*body.indirect, body.value) if isinstance(body, Scatter) else (body.value,)
                used = {node.buffer for node in postorder(roots) if isinstance(node, Load)}
                used |= {body.base} if isinstance(body, Scatter) else set()
            case _:
                outputs, used = statement.outputs, set(buffers_read(statement))
        if read.isdisjoint(buffer.name for buffer in outputs):
            rest = tuple(other for other in program.statements if other is not statement)
            yield replace(program, statements=rest)
        read |= used


def shrunk(program: Program, seed: int = 0, targets: Sequence[str] = TARGETS) -> Program:
    """The smallest of the smaller programs that are wrong too."""
    for candidate in smaller(program):
        if check(candidate, seed, targets) is not None:
            return shrunk(candidate, seed, targets)
    return program
