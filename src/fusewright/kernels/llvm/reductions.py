"""Reductions: where they start, how a vector is taken in, how lanes are folded at the end.

| kind | state | a step | lanes folded by |
| --- | --- | --- | --- |
| sum, prod, xor, any, all | one vector | the operation | one instruction |
| max, min | one vector | the greater, or NaN | the same for the greatest; NaN if any is |
| argmax, argmin | best value, position | where better, or NaN | halving; lower position first |

A Welford reduction is a sum, divided, and then a sum of squared deviations, in two passes. Sums of
floating-point numbers are kept short: a long loop starts afresh now and then and adds what it has
to a total, so that the error grows with the square root of the count at worst.
"""

from __future__ import annotations

import math

from fusewright.ir.dtype import DType
from fusewright.ir.neutral import neutral
from fusewright.ir.value import Number
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.scope import Scope, any_lane
from fusewright.kernels.llvm.storage import REGISTER
from fusewright.records import record

State = tuple[Register, ...]


@record
class Reducer:
    """One kind of reduction over one element type."""

    kind: str
    dtype: DType
    """The dtype of the values that are reduced."""

    @property
    def keeps_position(self) -> bool:
        return self.kind in ("argmax", "argmin")

    def state_types(self, lanes: int) -> tuple[VectorType, ...]:
        own = VectorType(REGISTER[self.dtype], lanes)
        return (own, VectorType("i64", lanes)) if self.keeps_position else (own,)

    def start(self, b: IRBuilder, lanes: int) -> State:
        """The state before any element."""
        value = b.constant(VectorType(REGISTER[self.dtype], lanes), self.neutral())
        if not self.keeps_position:
            return (value,)
        # Any position beats this one on a tie, so the first element is always taken.
        return value, b.constant(VectorType("i64", lanes), 2**63 - 1)

    def neutral(self) -> Number:
        """The value that changes nothing; a position has that of its value."""
        return neutral(self.kind.removeprefix("arg"), self.dtype)

    def step(self, b: IRBuilder, state: State, new: State) -> State:
        """Combine two states of equal width; what is in `state` came first."""
        if self.keeps_position:
            return self._better(b, state, new)
        return (self._combine(b, state[0], new[0]),)

    def _combine(self, b: IRBuilder, x: Register, y: Register) -> Register:
        prefix = "f" if self.dtype.is_float else ""
        match self.kind:
            case "sum":
                return b.binary(prefix + "add", x, y, joins=self.dtype.is_float)
            case "prod":
                return b.binary(prefix + "mul", x, y)
            case "xor":
                return b.binary("xor", x, y)
            case "any":
                return b.binary("or", x, y)
            case "all":
                return b.binary("and", x, y)
        if self.dtype is DType.BOOL:
            return b.binary("or" if self.kind == "max" else "and", x, y)
        if not self.dtype.is_float:
            sign = "u" if self.dtype.kind == "unsigned" else "s"
            return b.intrinsic(f"{sign}{self.kind}", x, y)
        return b.intrinsic(f"{self.kind}imum", x, y, flags="nsz ")

    def _better(self, b: IRBuilder, state: State, new: State) -> State:
        """The greater (smaller) value, NaN above all, and the lower position of equals."""
        (x, at_x), (y, at_y) = state, new
        relation = "gt" if self.kind == "argmax" else "lt"
        unsigned = self.dtype.kind == "unsigned"
        better = b.compare(relation, y, x, unsigned=unsigned)
        tie = y.equal(x)
        if self.dtype.is_float:
            nan_x, nan_y = x.is_nan(), y.is_nan()
            better = (better | nan_y) & (nan_x ^ True)
            tie = tie | (nan_x & nan_y)
        better = better | (tie & (at_y < at_x))
        return b.select(better, y, x), b.select(better, at_y, at_x)

    def fold(self, b: IRBuilder, state: State, lanes: int) -> State:
        """A state of `lanes` lanes: one made by a single instruction where there is one, else by
        halving."""
        if lanes == 1 and state[0].type.lanes > 1 and not self.keeps_position:
            return (self._fold_at_once(b, state[0]),)
        while state[0].type.lanes > lanes:
            half = state[0].type.lanes // 2
            low = tuple(take(b, part, 0, half) for part in state)
            high = tuple(take(b, part, half, half) for part in state)
            state = self.step(b, low, high)
        return state

    def _fold_at_once(self, b: IRBuilder, vector: Register) -> Register:
        """LLVM's reduction of a vector; `reassoc` lets it halve, which is also the more exact
        order."""
        scalar = VectorType(vector.type.element)
        name = self._fold_name()
        first, flag = "", ""
        if name in ("fmaximum", "fminimum"):
            # NaN is looked for apart: a processor's own maximum is one instruction then.
            folded = b.emit(
                scalar,
                f"call nnan {scalar} @llvm.vector.reduce.{name[:4]}.{vector.type.suffix}"
                f"({vector.type} {vector.text})",
            )
            return b.select(any_lane(b, vector.is_nan()), folded.like(math.nan), folded)
        if name in ("fadd", "fmul"):
            flag, first = "reassoc ", f"{scalar} {scalar.constant(self.neutral())}, "
        return b.emit(
            scalar,
            f"call {flag}{scalar} @llvm.vector.reduce.{name}.{vector.type.suffix}"
            f"({first}{vector.type} {vector.text})",
        )

    def _fold_name(self) -> str:
        """LLVM's name of the operation that folds lanes."""
        kind = self.kind
        if self.dtype is DType.BOOL:
            kind = {"max": "any", "min": "all"}.get(kind, kind)
        sign = "u" if self.dtype.kind == "unsigned" else "s"
        integer = {"sum": "add", "prod": "mul", "max": f"{sign}max", "min": f"{sign}min"}
        floating = {"sum": "fadd", "prod": "fmul", "max": "fmaximum", "min": "fminimum"}
        bits = {"xor": "xor", "any": "or", "all": "and"}
        return bits.get(kind) or (floating if self.dtype.is_float else integer)[kind]


def take(b: IRBuilder, vector: Register, first: int, count: int) -> Register:
    """`count` lanes of a vector from `first` on."""
    if count == 1:
        return b.extract(vector, first)
    return b.shuffle(vector, None, list(range(first, first + count)))


@record(frozen=False)
class Accumulator:
    """A reduction's state in memory of the function's frame, which LLVM turns into registers."""

    reducer: Reducer
    lanes: int
    slots: tuple[Register, ...]

    @classmethod
    def make(cls, scope: Scope, reducer: Reducer, lanes: int) -> Accumulator:
        slots = tuple(map(scope.lane_slot, reducer.state_types(lanes)))
        return cls(reducer, lanes, slots)

    def here(self, scope: Scope) -> Accumulator:
        """The accumulator of the lanes being written, where a block of lanes has this one."""
        if scope.block is None:
            return self
        kinds = self.reducer.state_types(1)
        slots = tuple(map(scope.at_lanes, self.slots, (kind.element for kind in kinds)))
        return Accumulator(self.reducer, scope.lane_count, slots)

    def reset(self, b: IRBuilder) -> None:
        self.write(b, self.reducer.start(b, self.lanes))

    def read(self, b: IRBuilder) -> State:
        kinds = self.reducer.state_types(self.lanes)
        return tuple(
            b.emit(kind, f"load {kind}, ptr {slot.text}")
            for kind, slot in zip(kinds, self.slots, strict=True)
        )

    def write(self, b: IRBuilder, state: State) -> None:
        for register, slot in zip(state, self.slots, strict=True):
            b.line(f"store {register.type} {register.text}, ptr {slot.text}")

    def take_in(self, b: IRBuilder, new: State, mask: Register | None) -> None:
        """One more vector; lanes outside of the mask change nothing."""
        if mask is not None:
            neutral = self.reducer.start(b, self.lanes)
            new = tuple(
                b.select(mask, part, other) for part, other in zip(new, neutral, strict=True)
            )
        self.write(b, self.reducer.step(b, self.read(b), new))
