"""Scans: what a row's elements so far gather to, carried from step to step.

| lanes | a step |
| --- | --- |
| outer loops | each lane combines what it carries with its row's next element |
| the inner loop | a vector is scanned in itself, then combined with what is carried |

A vector is scanned by combining it with itself moved by 1, 2, 4, … lanes (Hillis & Steele 1986).
No step waits for that of another: between steps lies one combination of two numbers.
"""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.group import ScanStore
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.operations import Operands, apply
from fusewright.kernels.llvm.reductions import Reducer
from fusewright.kernels.llvm.scope import Scope
from fusewright.kernels.llvm.storage import REGISTER, convert
from fusewright.kernels.llvm.values import evaluate_lanes
from fusewright.records import record


@record
class Scanner:
    """One kind of scan over values of one type."""

    kind: str
    dtype: DType

    def neutral(self, b: IRBuilder, lanes: int) -> Register:
        """The neutral element. For a sum it is -0.0, of which LLVM makes shuffles: of 0.0 it makes
        `vexpandpd`, which takes AMD's processors twenty cycles.
        """
        if self.kind == "sum" and self.dtype.is_float:
            return b.constant(VectorType(REGISTER[self.dtype], lanes), -0.0)
        return self.start(b, lanes)

    def start(self, b: IRBuilder, lanes: int) -> Register:
        """The result of a scan of no elements."""
        number = Reducer("max" if self.kind == "logsumexp" else self.kind, self.dtype).neutral()
        return b.constant(VectorType(REGISTER[self.dtype], lanes), number)

    def combine(self, b: IRBuilder, x: Register, y: Register) -> Register:
        """The result over earlier elements, which is `x`, and later ones, which is `y`."""
        match self.kind:
            case "sum":
                return b.binary("fadd" if self.dtype.is_float else "add", x, y)
            case "prod":
                return b.binary("fmul" if self.dtype.is_float else "mul", x, y)
            case "logsumexp":
                return self._logsumexp(b, x, y)
        relation = "gt" if self.kind == "max" else "lt"
        earlier = b.compare(relation, x, y, unsigned=self.dtype.kind == "unsigned")
        extreme = b.select(earlier, x, y)  # one instruction, which gives y where they are equal
        return b.select(x.is_nan(), x, extreme) if self.dtype.is_float else extreme

    def _logsumexp(self, b: IRBuilder, x: Register, y: Register) -> Register:
        """log(exp(x) + exp(y)), NaN if either is; infinities of one sign are their own sum."""

        def computed(operation: str, *values: Register) -> Register:
            none = (None,) * len(values)
            return apply(operation, Operands(b=b, dtype=self.dtype, values=values, constants=none))

        low, high = computed("minimum", x, y), computed("maximum", x, y)
        total = computed("log1p", computed("exp", low - high)) + high
        same = low.equal(high) & computed("isinf", low)
        return b.select(same, high, total)

    def within(self, b: IRBuilder, vector: Register) -> Register:
        """A vector scanned in itself: each lane combined with all before it."""
        lanes = vector.type.lanes
        neutral = self.neutral(b, lanes)
        distance = 1
        while distance < lanes:
            places = [n - distance if n >= distance else lanes for n in range(lanes)]
            vector = self.combine(b, b.shuffle(vector, neutral, places), vector)
            distance *= 2
        return vector


@record
class Carry:
    """A scan in progress: what the elements so far gather to, in memory of the function's frame,
    which LLVM turns into a register.
    """

    scanner: Scanner
    kind: VectorType
    """The type of the carried value: one lane, unless outer loops are the lanes."""

    slot: Register

    @classmethod
    def begin(cls, scope: Scope, action: ScanStore) -> Carry:
        """At the current point, before the loops of the stage."""
        scanner = Scanner(action.kind, action.value.dtype)
        start = scanner.start(scope.b, scope.local_lanes)
        carry = cls(scanner, start.type, scope.slot(str(start.type)))
        carry._write(scope.b, start)
        return carry

    def _write(self, b: IRBuilder, register: Register) -> None:
        b.line(f"store {register.type} {register.text}, ptr {self.slot.text}")

    def take_in(self, scope: Scope, action: ScanStore, held: DType) -> Register:
        """The results at the current element(s), as a buffer of type `held` has them."""
        b, scanner, lanes = scope.b, self.scanner, scope.lane_count
        new = evaluate_lanes(scope, action.value)
        before = b.emit(self.kind, f"load {self.kind}, ptr {self.slot.text}")
        if self.kind.lanes == lanes:
            total = scanner.combine(b, before, new)
            self._write(b, total)
        else:
            if scope.lanes is not None and scope.lanes.mask is not None:
                new = b.select(scope.lanes.mask, new, scanner.neutral(b, lanes))
            new = scanner.within(b, new)
            self._write(b, scanner.combine(b, before, b.extract(new, lanes - 1)))
            total = scanner.combine(b, b.splat(before, lanes), new)
        return convert(b, total, scanner.dtype, held)
