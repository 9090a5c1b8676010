"""Rules of operators that gather elements along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, product
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call, Element
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import dimensions, drop

Dimensions = Sequence[int] | int | None


def finish(call: Call, kept: Box, gathered: tuple[int, ...], keepdim: bool, dtype: DType) -> Box:
    """A reduction's result (dimensions kept) as eager returns it: of type `dtype`, dimensions
    dropped if asked.
    """
    box = kept if keepdim else drop(call, kept, gathered)
    if box.dtype is dtype:
        return box
    return call.lazy(box.size, dtype, lambda at: call.read(box, at, dtype.compute))


def count(x: Box, gathered: Sequence[int]) -> Index:
    """The number of elements reduced to one."""
    return product(x.size[d] for d in gathered)


def as_number(call: Call, index: Index, dtype: DType) -> Scalar:
    """A count in a floating type."""
    return call.number(int(index), dtype) if index.is_constant else call.index(index, dtype)


def mean_of(call: Call, size: tuple[Index, ...], gathered: Sequence[int], element: Element) -> Box:
    """The mean of `element` over dimensions that are kept, not rounded to a half type."""
    total = call.reduce("sum", size, gathered, element)
    elements = product(size[d] for d in gathered)
    dtype = total.dtype
    if elements.is_constant and int(elements) > 0:
        factor = 1.0 / int(elements)
        return call.lazy(total.size, dtype, lambda at: call.read(total, at) * factor)
    divisor = as_number(call, elements, dtype)
    return call.lazy(total.size, dtype, lambda at: call.read(total, at) / divisor)


@rule("aten.sum.default", "aten.sum.dim_IntList")
def sum_(
    call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False, *, dtype: Any = None
) -> Box:
    return _gather(call, "sum", x, dimensions(dim, x.rank), keepdim)


@rule("aten.nansum.default")
def nansum(
    call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False, *, dtype: Any = None
) -> Box:
    """The sum of what is a number."""
    gathered = dimensions(dim, x.rank)
    computed = call.result.dtype.compute

    def element(at: Position) -> Scalar:
        value = call.read(x, at, computed)
        return value.apply("isnan").where(value.like(0), value) if x.dtype.is_float else value

    kept = call.reduce("sum", x.size, gathered, element)
    return finish(call, kept, gathered, keepdim, call.result.dtype)


@rule("aten.prod.default", "aten.prod.dim_int")
def prod(
    call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False, *, dtype: Any = None
) -> Box:
    return _gather(call, "prod", x, dimensions(dim, x.rank), keepdim)


def _gather(call: Call, kind: str, x: Box, gathered: tuple[int, ...], keepdim: bool) -> Box:
    """A reduction in the result's type; of bool, a sum or product counts in integers."""
    dtype = call.result.dtype
    kept = call.reduce(kind, x.size, gathered, lambda at: call.read(x, at, dtype.compute))
    return finish(call, kept, gathered, keepdim, dtype)


@rule("aten.mean.default", "aten.mean.dim")
def mean(
    call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False, *, dtype: Any = None
) -> Box:
    gathered = dimensions(dim, x.rank)
    computed = call.result.dtype.compute
    kept = mean_of(call, x.size, gathered, lambda at: call.read(x, at, computed))
    box = kept if keepdim else drop(call, kept, gathered)
    return call.elementwise(lambda at: call.read(box, at))


@rule("aten.amax.default")
def amax(call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False) -> Box:
    return _gather(call, "max", x, dimensions(dim, x.rank), keepdim)


@rule("aten.amin.default")
def amin(call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False) -> Box:
    return _gather(call, "min", x, dimensions(dim, x.rank), keepdim)


@rule("aten.max.default")
def max_(call: Call, x: Box) -> Box:
    return _gather(call, "max", x, dimensions(None, x.rank), False)


@rule("aten.min.default")
def min_(call: Call, x: Box) -> Box:
    return _gather(call, "min", x, dimensions(None, x.rank), False)


@rule("aten.max.dim", "aten.min.dim")
def extreme_with_position(call: Call, x: Box, dim: int, keepdim: bool = False) -> Any:
    kind = "max" if call.operator == "aten.max.dim" else "min"
    gathered = dimensions(dim, x.rank)
    call.realise_unless_free(x)
    position = _position(call, f"arg{kind}", x, gathered, keepdim)
    return _gather(call, kind, x, gathered, keepdim), position


@rule("aten.argmax.default", "aten.argmin.default")
def extreme_position(call: Call, x: Box, dim: int | None = None, keepdim: bool = False) -> Any:
    kind = call.operator.split(".")[1]
    return _position(call, kind, x, dimensions(dim, x.rank), keepdim)


def _position(call: Call, kind: str, x: Box, gathered: tuple[int, ...], keepdim: bool) -> Box:
    kept = call.reduce(kind, x.size, gathered, lambda at: call.stored(x, at))
    return finish(call, kept, gathered, keepdim, DType.I64)


@rule(*(f"aten.{n}.{o}" for n in ("any", "all") for o in ("default", "dim", "dims")))
def any_or_all(call: Call, x: Box, dim: Dimensions = None, keepdim: bool = False) -> Any:
    kind = call.operator.split(".")[1]
    gathered = () if dim == [] else dimensions(dim, x.rank)
    kept = call.reduce(kind, x.size, gathered, lambda at: call.stored(x, at, DType.BOOL))
    return finish(call, kept, gathered, keepdim, call.result.dtype)


# Variance -----------------------------------------------------------------------------------------


def squared_deviations(
    call: Call, size: tuple[Index, ...], gathered: Sequence[int], element: Element
) -> tuple[Box, Box]:
    """(mean, sum of squared deviations from it) in two passes: good also for a large mean."""
    mean = mean_of(call, size, gathered, element)

    def squared(at: Position) -> Scalar:
        deviation = element(at) - call.read(mean, at)
        return deviation * deviation

    return mean, call.reduce("sum", size, gathered, squared)


def corrected_deviations(
    call: Call, size: tuple[Index, ...], gathered: Sequence[int], element: Element
) -> tuple[Box, Box]:
    """`squared_deviations`, whose second pass also measures by how much the first one's mean is
    off, and makes up for that in both ("the corrected two-pass algorithm" of Chan, Golub & LeVeque
    1983). What is left of equal numbers then is rounding, and is taken for the 0 that it stands
    for. Normalisations, which add an epsilon, have no use for so much.
    """
    rough, about_rough = squared_deviations(call, size, gathered, element)
    error = mean_of(call, size, gathered, lambda at: element(at) - call.read(rough, at))
    elements = as_number(call, product(size[d] for d in gathered), rough.dtype)

    def mean(at: Position) -> Scalar:
        return call.read(rough, at) + call.read(error, at)

    def squares(at: Position) -> Scalar:
        whole, off = call.read(about_rough, at), call.read(error, at)
        rest = whole - off * off * elements
        rest = (rest < whole * NOTHING_BUT_ROUNDING).where(rest.like(0), rest)
        return whole.apply("eq", math.inf).where(whole, rest)

    # One number is its own mean, also where it is infinite and has no error.
    return (
        rough if elements.constant == 1 else call.lazy(rough.size, rough.dtype, mean),
        call.lazy(rough.size, rough.dtype, squares),
    )


NOTHING_BUT_ROUNDING = 2.0**-10
"""Part of a sum of squares below which its correction leaves no digit of meaning."""


@rule("aten.var.correction", "aten.std.correction")
def variance(
    call: Call, x: Box, dim: Dimensions = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _variance(call, x, dim, correction, keepdim)[0]


@rule("aten.var_mean.correction", "aten.std_mean.correction")
def variance_and_mean(
    call: Call, x: Box, dim: Dimensions = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _variance(call, x, dim, correction, keepdim)


def _variance(
    call: Call, x: Box, dim: Dimensions, correction: Any, keepdim: bool
) -> tuple[Box, Box]:
    gathered = dimensions(dim, x.rank)
    call.realise_unless_free(x)
    # The squares of numbers far from 1 are out of range where their root is not.
    dtype = DType.F64 if x.device == "cpu" else x.dtype.compute
    mean, squares = corrected_deviations(call, x.size, gathered, lambda at: call.read(x, at, dtype))
    divisor = _degrees_of_freedom(call, count(x, gathered), correction, dtype)
    root = ".std" in call.operator

    def element(at: tuple[Index, ...]) -> Scalar:
        spread = call.read(squares, at) / divisor
        return spread.apply("sqrt") if root else spread

    spread = call.lazy(squares.size, dtype, element)
    result = call.result.dtype
    return (
        finish(call, spread, gathered, keepdim, result),
        finish(call, mean, gathered, keepdim, result),
    )


def _degrees_of_freedom(call: Call, elements: Index, correction: Any, dtype: DType) -> Scalar:
    """`max(elements - correction, 0)`."""
    correction = 1 if correction is None else correction
    if elements.is_constant:
        return call.number(float(max(int(elements) - correction, 0)), dtype)
    return (as_number(call, elements, dtype) - float(correction)).apply("maximum", 0.0)


# Norms --------------------------------------------------------------------------------------------


@rule("aten.linalg_vector_norm.default")
def vector_norm(
    call: Call,
    x: Box,
    order: Any = 2,
    dim: Dimensions = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    formulas = _NORMS.get(order)
    if formulas is None:
        return NotImplemented
    kind, before, after = formulas
    gathered = dimensions(dim, x.rank)
    computed = call.result.dtype.compute
    if order and count(x, gathered) == 1:  # Its square may be out of range where it is not.
        kind, before, after = "sum", _magnitude, _unchanged
    if kind in ("max", "min") and count(x, gathered).lower == 0:
        return NotImplemented
    kept = call.reduce(kind, x.size, gathered, lambda at: before(call.read(x, at, computed)))
    box = kept if keepdim else drop(call, kept, gathered)
    return call.elementwise(lambda at: after(call.read(box, at)))


def _magnitude(x: Scalar) -> Scalar:
    return x.apply("abs")


def _unchanged(x: Scalar) -> Scalar:
    return x


_NORMS: dict[Any, tuple[str, Any, Any]] = {
    0: ("sum", lambda x: x.apply("ne", 0).cast(x.dtype), _unchanged),
    1: ("sum", _magnitude, _unchanged),
    2: ("sum", lambda x: x * x, lambda x: x.apply("sqrt")),
    math.inf: ("max", _magnitude, _unchanged),
    -math.inf: ("min", _magnitude, _unchanged),
}
"""Norms by order: the kind of reduction, the values reduced, and a function of the result."""
