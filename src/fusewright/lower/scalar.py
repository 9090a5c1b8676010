"""One element of a tensor as an expression with Python's operators, so that rules read like
mathematics.
"""

from __future__ import annotations

from typing import Union

from fusewright.ir.dtype import DType
from fusewright.ir.value import Constant, Expressions, Number, Value
from fusewright.lower.folding import fold
from fusewright.records import record

Operand = Union["Scalar", bool, int, float]


@record
class Scalar:
    """A value and the table that makes more of them. Python numbers become constants of the other
    side's type.
    """

    value: Value
    expressions: Expressions

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def apply(self, operation: str, *others: Operand) -> Scalar:
        """`operation` of `ir.ops` on this element and others of the same type."""
        arguments = (self.value, *(self.like(other).value for other in others))
        return self._make(operation, arguments)

    def _make(self, operation: str, arguments: tuple[Value, ...]) -> Scalar:
        value = fold(self.expressions, operation, arguments)
        if value is None:
            value = self.expressions.apply(operation, *arguments)
        return Scalar(value, self.expressions)

    def like(self, number: Operand) -> Scalar:
        """`number` as a constant of this element's type."""
        if isinstance(number, Scalar):
            return number
        return Scalar(self.expressions.constant(number, self.dtype), self.expressions)

    def cast(self, dtype: DType) -> Scalar:
        if dtype is self.value.dtype:
            return self
        return Scalar(self.expressions.cast(self.value, dtype), self.expressions)

    def where(self, chosen: Scalar, otherwise: Operand) -> Scalar:
        """`chosen` where this (a bool) holds, else `otherwise`."""
        other = chosen.like(otherwise)
        return self._make("where", (self.value, chosen.value, other.value))

    def masked(self, mask: Scalar, otherwise: Number) -> Scalar:
        """The element where `mask` holds, else a constant; nothing is loaded where it does not."""
        value = self.expressions.masked(mask.value, self.value, otherwise)
        return Scalar(value, self.expressions)

    @property
    def constant(self) -> Number | None:
        """The number, when this is a constant."""
        return self.value.value if isinstance(self.value, Constant) else None

    def __add__(self, other: Operand) -> Scalar:
        return self.apply("add", other)

    def __sub__(self, other: Operand) -> Scalar:
        return self.apply("sub", other)

    def __mul__(self, other: Operand) -> Scalar:
        return self.apply("mul", other)

    def __truediv__(self, other: Operand) -> Scalar:
        return self.apply("div", other)

    def __radd__(self, other: Operand) -> Scalar:
        return self.like(other) + self

    def __rsub__(self, other: Operand) -> Scalar:
        return self.like(other) - self

    def __rmul__(self, other: Operand) -> Scalar:
        return self.like(other) * self

    def __rtruediv__(self, other: Operand) -> Scalar:
        return self.like(other) / self

    def __neg__(self) -> Scalar:
        return self.apply("neg")

    def __lt__(self, other: Operand) -> Scalar:
        return self.apply("lt", other)

    def __le__(self, other: Operand) -> Scalar:
        return self.apply("le", other)

    def __gt__(self, other: Operand) -> Scalar:
        return self.apply("gt", other)

    def __ge__(self, other: Operand) -> Scalar:
        return self.apply("ge", other)

    def __and__(self, other: Operand) -> Scalar:
        return self.apply("bitwise_and", other)

    def __or__(self, other: Operand) -> Scalar:
        return self.apply("bitwise_or", other)

    def __invert__(self) -> Scalar:
        return self.apply("bitwise_not")
