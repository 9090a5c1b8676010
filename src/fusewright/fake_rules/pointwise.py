"""Geometry of pointwise operators: sizes broadcast, types are promoted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    broadcast_sizes,
    contiguous,
    converted,
    elementwise,
    is_dense,
    is_number,
    named,
    same_sizes,
)


def _float_of(dtype: torch.dtype) -> torch.dtype | None:
    if dtype.is_complex:
        return None
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def unary_to_float(x: Tensor, **options: Any) -> Geometry | None:
    """exp, tanh …: integers become the default floating type."""
    dtype = _float_of(x.dtype)
    return None if dtype is None or options else elementwise(dtype, (x,))


def unary_float_only(x: Tensor, *parameters: Any, **options: Any) -> Geometry | None:
    """gelu, silu …: defined on floating types alone, given back unchanged."""
    return elementwise(x.dtype, (x,)) if x.dtype.is_floating_point else None


def gelu(x: Tensor, *, approximate: str = "none") -> Geometry | None:
    """gelu, in one of two ways."""
    return unary_float_only(x) if approximate in ("none", "tanh") else None


def unary_same(x: Tensor, *parameters: Any, **options: Any) -> Geometry | None:
    """neg, abs, floor …: the type stays; bool and complex are left to torch."""
    if x.dtype.is_complex or x.dtype is torch.bool:
        return None
    return elementwise(x.dtype, (x,))


def inverted(x: Tensor) -> Geometry | None:
    """bitwise_not: integers and bool."""
    whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
    return elementwise(x.dtype, (x,)) if whole else None


def angle(x: Tensor) -> Geometry | None:
    """angle: of complex numbers row-major, whatever their layout is."""
    return contiguous(x.dtype.to_real(), x.shape) if x.dtype.is_complex else unary_to_float(x)


def unary_to_bool(x: Tensor) -> Geometry | None:
    """isnan, logical_not …"""
    return elementwise(torch.bool, (x,))


def bounded(x: Tensor, low: Any = None, high: Any = None) -> Geometry | None:
    """clamp with numbers: only where the bounds do not change the type."""
    if not x.dtype.is_floating_point or (low is None and high is None):
        return None
    if not all(bound is None or is_number(bound) for bound in (low, high)):
        return None
    return elementwise(x.dtype, (x,))


def _promoted(x: Any, y: Any) -> tuple[torch.dtype, tuple[Tensor, ...]] | None:
    """The type that torch computes `x op y` in, and the tensors among the two; None for complex
    numbers, and for two numbers.
    """
    tensors = tuple(operand for operand in (x, y) if isinstance(operand, Tensor))
    if not all(isinstance(operand, Tensor) or is_number(operand) for operand in (x, y)):
        return None
    if not tensors:
        return None
    if len(tensors) == 2 and x.dtype == y.dtype:
        dtype = x.dtype
    else:
        # On the tensors inside: on a subclass torch would dispatch even this question.
        dtype = torch.result_type(getattr(x, "meta_tensor", x), getattr(y, "meta_tensor", y))
    return None if dtype.is_complex else (dtype, tensors)


def binary(x: Any, y: Any, alpha: Any = 1) -> Geometry | None:
    """add, mul, maximum …: the promoted type of both; bool arithmetic is left to torch."""
    promoted = _promoted(x, y)
    if promoted is None or promoted[0] is torch.bool or not is_number(alpha):
        return None
    if isinstance(alpha, float | torch.SymFloat) and not promoted[0].is_floating_point:
        return None
    return elementwise(*promoted, promoted[0])


def difference(x: Any, y: Any, alpha: Any = 1) -> Geometry | None:
    """sub: as `binary`; torch refuses bool on either side."""
    has_bool = any(isinstance(operand, bool) or _is_bool(operand) for operand in (x, y))
    return None if has_bool else binary(x, y, alpha)


def reversed_difference(x: Any, y: Any, alpha: Any = 1) -> Geometry | None:
    """rsub: y - alpha * x, which looks at `y` first."""
    return difference(y, x, alpha)


def _is_bool(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.bool


def binary_or_bool(x: Any, y: Any) -> Geometry | None:
    """Like `binary` for operators that take bool: mul, bitwise_and, maximum."""
    promoted = _promoted(x, y)
    return None if promoted is None else elementwise(*promoted, promoted[0])


def binary_bitwise(x: Any, y: Any) -> Geometry | None:
    """bitwise_and …: integers and bool."""
    promoted = _promoted(x, y)
    if promoted is None or promoted[0].is_floating_point:
        return None
    return elementwise(*promoted, promoted[0])


def binary_to_float(x: Any, y: Any) -> Geometry | None:
    """div, atan2, copysign: integers become the default floating type."""
    promoted = _promoted(x, y)
    if promoted is None:
        return None
    dtype = _float_of(promoted[0])
    return None if dtype is None else elementwise(dtype, promoted[1], dtype)


def binary_float_only(x: Any, y: Any) -> Geometry | None:
    """logaddexp: floating types."""
    promoted = _promoted(x, y)
    if promoted is None or not promoted[0].is_floating_point:
        return None
    return elementwise(*promoted, promoted[0])


def step(x: Tensor, values: Tensor) -> Geometry | None:
    """heaviside: of two tensors of one type, which is that of the result."""
    if x.dtype != values.dtype or x.dtype.is_complex:
        return None
    return elementwise(x.dtype, (x, values))


def rounded_division(x: Any, y: Any, *, rounding_mode: str | None = None) -> Geometry | None:
    """div with a rounding mode: integers stay integers."""
    return binary_to_float(x, y) if rounding_mode is None else binary(x, y)


def comparison(x: Any, y: Any) -> Geometry | None:
    """eq, lt, logical_and …"""
    promoted = _promoted(x, y)
    return None if promoted is None else elementwise(torch.bool, promoted[1], promoted[0])


def power(x: Any, y: Any) -> Geometry | None:
    """pow: floating results alone; negative integer exponents are left to torch."""
    promoted = _promoted(x, y)
    if promoted is None or not promoted[0].is_floating_point:
        return None
    return elementwise(*promoted, promoted[0])


def power_of_number(base: Any, exponent: Any) -> Geometry | None:
    """pow.Scalar: row-major whatever the layout of the exponent is. Its namesake in place,
    pow_.Scalar, is a power of a tensor.
    """
    promoted = _promoted(base, exponent)
    if promoted is None or promoted[0] is torch.bool or not isinstance(exponent, Tensor):
        return None
    return contiguous(promoted[0], tuple(exponent.shape))


def membership(
    elements: Any, choices: Any, *, assume_unique: bool = False, invert: bool = False
) -> Geometry | None:
    """isin: row-major whatever the layouts are."""
    if _promoted(elements, choices) is None:
        return None
    return contiguous(torch.bool, tuple(elements.shape) if isinstance(elements, Tensor) else ())


def where(condition: Tensor, x: Any, y: Any) -> Geometry | None:
    """where.self: the promoted type of the two values."""
    promoted = _promoted(x, y)
    if promoted is None or condition.dtype is not torch.bool:
        return None
    values = [value if value.dtype == promoted[0] else converted(value) for value in promoted[1]]
    return elementwise(promoted[0], (condition, *values))


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Geometry | None:
    """masked_fill: the type of `x`, row-major whatever the layouts are."""
    if isinstance(value, Tensor) and value.dim():
        return None
    size = broadcast_sizes([tuple(x.shape), tuple(mask.shape)])
    if mask.dtype is not torch.bool or size is None:
        return None
    return contiguous(x.dtype, size)


def fused(x: Tensor, y: Tensor, z: Tensor, *, value: Any = 1) -> Geometry | None:
    """addcmul, addcdiv of floating tensors of one type."""
    if not x.dtype.is_floating_point or not x.dtype == y.dtype == z.dtype:
        return None
    return elementwise(x.dtype, (x, y, z))


def interpolated(x: Tensor, y: Tensor, weight: Any) -> Geometry | None:
    """lerp of floating tensors of one type."""
    operands = (x, y, weight) if isinstance(weight, Tensor) else (x, y)
    if not x.dtype.is_floating_point or any(operand.dtype != x.dtype for operand in operands):
        return None
    return elementwise(x.dtype, operands)


def loss(x: Tensor, target: Tensor, reduction: int = 1, *options: Any) -> Geometry | None:
    """huber_loss, soft_margin_loss: of the type of `x` even where `target` has a wider one."""
    if x.dtype == target.dtype or not x.dtype.is_floating_point:
        return None
    if reduction != 0:
        return contiguous(x.dtype, ())
    return elementwise(x.dtype, (x,)) if same_sizes(x.shape, target.shape) else None


def overwritten(x: Tensor, source: Any = 0, non_blocking: bool = False) -> Geometry | None:
    """copy, fill, zero: like `x`, which the source has to expand to."""
    size, stride = tuple(x.shape), x.stride()
    if isinstance(source, Tensor):
        broadcast = broadcast_sizes([size, tuple(source.shape)])
        if broadcast is None or not same_sizes(broadcast, size):
            return None
    return Geometry(x.dtype, size, stride) if is_dense(size, stride) else None


def drawn(x: Tensor, *others: Tensor, **options: Any) -> Geometry | None:
    """Random numbers whose distributions, or gradients, `x` and tensors like it tell: row-major."""
    if x.dtype not in (torch.float32, torch.float64):
        return None
    if not all(other.dtype == x.dtype and same_sizes(other.shape, x.shape) for other in others):
        return None
    return contiguous(x.dtype, x.shape)


RULES: dict[Any, Rule] = {
    **named(
        unary_to_float,
        "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh"
        " acosh atanh sqrt rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma",
    ),
    **named(
        unary_float_only,
        "silu hardswish hardsigmoid hardtanh elu leaky_relu softplus mish",
    ),
    **named(gelu, "gelu"),
    **named(unary_same, "neg abs relu floor ceil trunc round sign"),
    **named(angle, "angle"),
    **named(inverted, "bitwise_not"),
    **named(unary_to_bool, "logical_not isnan isinf"),
    **named(bounded, "clamp clamp_min clamp_max"),
    **named(
        binary,
        "add.Tensor add.Scalar remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar"
        " floor_divide.default",
    ),
    **named(difference, "sub.Tensor sub.Scalar"),
    **named(reversed_difference, "rsub.Tensor rsub.Scalar"),
    **named(binary_or_bool, "mul.Tensor mul.Scalar maximum minimum"),
    **named(
        binary_bitwise,
        "bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar"
        " bitwise_xor.Tensor",
    ),
    **named(
        binary_to_float,
        "div.Tensor div.Scalar atan2 xlogy.Tensor special_xlog1py copysign.Tensor",
    ),
    **named(binary_float_only, "logaddexp logaddexp2"),
    **named(step, "heaviside"),
    **named(rounded_division, "div.Tensor_mode div.Scalar_mode"),
    **named(
        comparison,
        "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar"
        " gt.Tensor gt.Scalar ge.Tensor ge.Scalar logical_and logical_or logical_xor",
    ),
    **named(power, "pow.Tensor_Scalar pow.Tensor_Tensor hypot"),
    **named(power_of_number, "pow.Scalar"),
    **named(membership, "isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor"),
    **named(where, "where.self"),
    **named(masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    **named(fused, "addcmul addcdiv"),
    **named(interpolated, "lerp.Scalar lerp.Tensor"),
    **named(loss, "huber_loss soft_margin_loss"),
    **named(overwritten, "copy fill.Scalar fill.Tensor zero"),
    **named(drawn, "binomial _sample_dirichlet _dirichlet_grad"),
}
