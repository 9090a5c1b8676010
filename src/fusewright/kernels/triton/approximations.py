"""What is rounded to a half type is computed by approximations, off by a few units of float32.

before                                          after
------                                          -----
y = cast(mul(x, sigmoid(z))): bf16              y = cast(mul(x, approximate_sigmoid(z))): bf16
e = sigmoid(z): f32                             e = sigmoid(z): f32

A unit of bfloat16 is 65,536 units of float32, one of float16 8,192: a kernel that moves half types
has time for some twenty instructions an element, of which CUDA's error function takes 28. Sums of
what half types alone are made of, or their extremes, are alike. It depends on nothing but the value
itself whether it is approximate: kernels that compute the same value of a half type get the same
number, also where one needs what is rounded for something else, which it computes exactly then.
What is compared, decides a condition, or is stored as it is, is exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.group import Action, Gather, Reduce, action_roots
from fusewright.ir.limits import HALF_TYPES
from fusewright.ir.value import Apply, Cast, Constant, Load, Masked, Value, children, postorder
from fusewright.kernels.triton.axis_form import AxisStage
from fusewright.records import replace

SUMS: Final = ("sum", "welford")
"""Reductions whose operands may be approximate, where these are made of half types alone."""

EXTREMES: Final = ("max", "min")
"""Reductions that give one of their operands."""


def approximate(stages: Iterable[AxisStage]) -> tuple[AxisStage, ...]:
    """The stages, with approximations in what is rounded to half types."""
    stages = tuple(stages)
    values = _Approximated(stages)
    return tuple(
        AxisStage(stage.inner, tuple(map(values.action, stage.actions))) for stage in stages
    )


class _Approximated:
    """The values of some stages, each as it is computed for three kinds of readers."""

    def __init__(self, stages: tuple[AxisStage, ...]) -> None:
        self.exact: dict[int, Value] = {}
        """By the value's identity, approximate only below roundings within."""

        self.summed: dict[int, Value] = {}
        """For a sum: approximate where it is made of half types."""

        self.rounded: dict[int, Value] = {}
        """For a rounding: approximate."""

        self.is_of_halves: dict[int, bool] = {}
        self.made: dict[tuple[object, ...], Value] = {}
        self.extremes: set[str] = set()
        """Locals that are the greatest or least of what is made of half types: such numbers."""

        for stage in stages:
            self._add(stage)

    def _add(self, stage: AxisStage) -> None:
        """Learn the values of a stage, which comes after those before it."""
        for value in postorder(action_roots(*stage.actions)):
            if id(value) in self.exact:
                continue
            self.is_of_halves[id(value)] = self._is_of_halves(value)
            is_rounded = isinstance(value, Cast) and value.dtype in HALF_TYPES
            exact = self._rebuilt(value, self.rounded if is_rounded else self.exact)
            self.exact[id(value)] = self.summed[id(value)] = self.rounded[id(value)] = exact
            if isinstance(value, Apply | Masked) and value.dtype is DType.F32:
                self.summed[id(value)] = self._approximate(value, self.summed)
                self.rounded[id(value)] = self._approximate(value, self.rounded)
        for action in stage.actions:
            if (
                isinstance(action, Reduce)
                and action.kind in EXTREMES
                and self.is_of_halves[id(action.value)]
            ):
                self.extremes.update(action.targets)

    def action(self, action: Action) -> Action:
        """An action on what it is to compute with."""
        is_sum = isinstance(action, Reduce | Gather) and action.kind in SUMS
        value = (self.summed if is_sum else self.exact)[id(action.value)]
        return action if value is action.value else replace(action, value=value)

    def _is_of_halves(self, value: Value) -> bool:
        """Whether a value is made of those of half types alone, and of constants."""
        if isinstance(value, Constant) or value.dtype in HALF_TYPES:
            return True
        if isinstance(value, Load):
            return value.buffer in self.extremes
        if isinstance(value, Apply | Cast | Masked):
            return all(self.is_of_halves[id(operand)] for operand in children(value))
        return False

    def _approximate(self, value: Apply | Masked, values: Mapping[int, Value]) -> Value:
        """A value by an approximation, or made of those of its operands that are."""
        if isinstance(value, Apply):
            for name, operand_of in FORMS.items():
                operand = operand_of(value)
                if operand is None:
                    continue
                if values is self.rounded or self.is_of_halves[id(operand)]:
                    new = values[id(operand)]
                    made = Apply(operation=name, arguments=(new,), dtype=DType.F32)
                    return self.made.setdefault((name, id(new)), made)
        return self._rebuilt(value, values)

    def _rebuilt(self, value: Value, values: Mapping[int, Value]) -> Value:
        """A value made of other operands; itself, if they are the same, and if it is found in
        memory, by an exact index.
        """
        old = children(value)
        new = tuple(values[id(operand)] for operand in old)
        if all(map(operator.is_, old, new)):
            return value
        match value:
            case Apply():
                made: Value = replace(value, arguments=new)
            case Cast():
                made = replace(value, argument=new[0])
            case Masked():
                made = replace(value, mask=new[0], value=new[1], otherwise=new[2])
            case _:
                return value
        return self.made.setdefault((id(value), *map(id, new)), made)


# Forms --------------------------------------------------------------------------------------------


def _arguments(value: Value | None, operation: str) -> tuple[Value, ...]:
    """The arguments of an operation; none, where the value is no such operation."""
    if isinstance(value, Apply) and value.operation == operation:
        return value.arguments
    return ()


def _argument(value: Value | None, operation: str) -> Value | None:
    """The only argument of an operation."""
    return next(iter(_arguments(value, operation)), None)


def _beside_one(value: Value, operation: str) -> Value | None:
    """What an operation has beside the number 1, which is its first argument."""
    match _arguments(value, operation):
        case (Constant(value=1), other):
            return other
    return None


def _of_square(value: Value | None) -> Value | None:
    """What a square is of."""
    match _arguments(value, "mul"):
        case (factor, other) if factor is other:
            return factor
    return None


def _multiplied(value: Value | None, number: float) -> Value | None:
    """What a product with a number is of, which is the second factor."""
    match _arguments(value, "mul"):
        case (factor, Constant(value=second)) if second == number:
            return factor
    return None


FORMS: Final[dict[str, Callable[[Apply], Value | None]]] = {
    "approximate_sigmoid": lambda value: _argument(value, "sigmoid"),
    "approximate_bell": lambda value: _of_square(_multiplied(_argument(value, "exp"), -0.5)),
    # Errors of these are small beside 1; erf and tanh themselves are as small, near 0.
    "approximate_twice_normal": lambda value: _multiplied(
        _argument(_beside_one(value, "add"), "erf"), math.sqrt(0.5)
    ),
    "approximate_one_plus_tanh": lambda value: _argument(_beside_one(value, "add"), "tanh"),
    "approximate_one_minus_tanh_squared": lambda value: _argument(
        _of_square(_beside_one(value, "sub")), "tanh"
    ),
    "approximate_log_of_one_plus_small": lambda value: _argument(
        _argument(_argument(_argument(value, "log1p"), "exp"), "neg"), "abs"
    ),
    "approximate_exp": lambda value: _argument(value, "exp"),
}
"""By the name of an approximation, what it is of, where a value has its form; else None."""
