"""Sizes, strides and dtypes of the results of common operators, computed without torch's meta kernels.

Torch's own meta kernels for these are Python references that take 50 to 1000 us each and import sympy; a rule here takes
a few. A rule gets the operator's arguments and gives a `Geometry` (a tuple of them for several results), or None when
the case is unusual or wrong: then torch's meta kernel decides, and raises torch's own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a fresh result looks like; strides are in elements."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def allocate(self) -> Tensor:
        """A meta tensor of this geometry in a storage of its own."""
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="meta")


Rule = Callable[..., "Geometry | tuple[Geometry, ...] | None"]


def contiguous(dtype: torch.dtype, size: Sequence[int]) -> Geometry:
    """Row-major geometry; a dimension of size 0 counts as 1 in the strides, as in torch."""
    strides = []
    step = 1
    for extent in reversed(size):
        strides.append(step)
        step *= max(extent, 1)
    return Geometry(dtype, tuple(size), tuple(reversed(strides)))


# -- elementwise -----------------------------------------------------------------------------------------------------


def elementwise(dtype: torch.dtype, operands: Sequence[Tensor]) -> Geometry | None:
    """The geometry that torch's TensorIterator gives a fresh output; None when the sizes do not broadcast.

    Source: the published behaviour of TensorIterator. Operands of one dense layout hand that layout on; else dimensions
    are ordered by the operands' strides, the first operand that tells two dimensions apart deciding.
    """
    first = operands[0]
    size = tuple(first.shape)
    stride = first.stride()
    if all(other.shape == size for other in operands[1:]):
        if all(other.is_contiguous() for other in operands):
            return contiguous(dtype, size)
        if len(size) == 4 and all(
            other.is_contiguous(memory_format=torch.channels_last) for other in operands
        ):
            n, c, h, w = size
            return Geometry(dtype, size, (h * w * c, 1, w * c, c))
        if all(other.stride() == stride for other in operands[1:]) and is_dense(size, stride):
            return Geometry(dtype, size, stride)
    else:
        broadcast = broadcast_sizes([tuple(operand.shape) for operand in operands])
        if broadcast is None:
            return None
        size = broadcast
    return _ordered_by_strides(dtype, size, operands)


def _ordered_by_strides(
    dtype: torch.dtype, size: tuple[int, ...], operands: Sequence[Tensor]
) -> Geometry:
    rank = len(size)
    expanded = [
        [0] * (rank - operand.dim())
        + [
            0 if extent == 1 and size[rank - operand.dim() + dim] != 1 else operand.stride(dim)
            for dim, extent in enumerate(operand.shape)
        ]
        for operand in operands
        if operand.dim()
    ]

    def comes_later(a: int, b: int) -> int:
        """Whether dimension `a` is outside dimension `b`: 1 yes, -1 no, 0 the operands do not tell."""
        for strides in expanded:
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if size[a] > size[b]:
                return 1
        return 0

    order = list(range(rank - 1, -1, -1))  # innermost first
    for start in range(1, rank):
        position = start
        for other in range(start - 1, -1, -1):
            verdict = comes_later(order[other], order[position])
            if verdict > 0:
                order[other], order[position] = order[position], order[other]
                position = other
            elif verdict < 0:
                break
    strides = [0] * rank
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(size[dim], 1)
    return Geometry(dtype, size, tuple(strides))


def broadcast_sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common size that all shapes expand to, or None."""
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for dim, extent in enumerate(shape, rank - len(shape)):
            if extent == 1 or extent == result[dim]:
                continue
            if result[dim] != 1:
                return None
            result[dim] = extent
    return tuple(result)


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill their range of memory without overlap, in any order of dimensions."""
    step = 1
    for extent, jump in sorted(zip(size, stride), key=lambda pair: pair[1]):
        if extent == 1:
            continue
        if jump != step:
            return False
        step *= extent
    return True


def _float_of(dtype: torch.dtype) -> torch.dtype | None:
    if dtype.is_complex:
        return None
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, bool)) and not isinstance(value, Tensor)


def unary_to_float(x: Tensor, **options: Any) -> Geometry | None:
    """exp, tanh …: integers become the default floating type."""
    dtype = _float_of(x.dtype)
    return None if dtype is None or options else elementwise(dtype, (x,))


def unary_float_only(x: Tensor, *parameters: Any, **options: Any) -> Geometry | None:
    """gelu, silu …: defined on floating types alone, given back unchanged."""
    return elementwise(x.dtype, (x,)) if x.dtype.is_floating_point else None


def unary_same(x: Tensor, *parameters: Any, **options: Any) -> Geometry | None:
    """neg, abs, floor …: the type stays; bool and complex are left to torch."""
    if x.dtype.is_complex or x.dtype is torch.bool:
        return None
    return elementwise(x.dtype, (x,))


def unary_to_bool(x: Tensor) -> Geometry | None:
    """isnan, logical_not …"""
    return elementwise(torch.bool, (x,))


def bounded(x: Tensor, low: Any = None, high: Any = None) -> Geometry | None:
    """clamp with numbers: only where the bounds do not change the type."""
    if not x.dtype.is_floating_point or (low is None and high is None):
        return None
    if not all(bound is None or _is_number(bound) for bound in (low, high)):
        return None
    return elementwise(x.dtype, (x,))


def _promoted(x: Any, y: Any) -> tuple[torch.dtype, tuple[Tensor, ...]] | None:
    tensors = tuple(operand for operand in (x, y) if isinstance(operand, Tensor))
    if not all(isinstance(operand, Tensor) or _is_number(operand) for operand in (x, y)):
        return None
    dtype = torch.result_type(x, y)
    return None if dtype.is_complex else (dtype, tensors)


def binary(x: Any, y: Any, *, alpha: Any = 1) -> Geometry | None:
    """add, mul, maximum …: the promoted type of both; bool arithmetic is left to torch."""
    found = _promoted(x, y)
    if found is None or found[0] is torch.bool or not _is_number(alpha):
        return None
    if isinstance(alpha, float) and not found[0].is_floating_point:
        return None
    return elementwise(*found)


def binary_or_bool(x: Any, y: Any) -> Geometry | None:
    """Like `binary` for operators that take bool: mul, bitwise_and, maximum."""
    found = _promoted(x, y)
    return None if found is None else elementwise(*found)


def binary_bitwise(x: Any, y: Any) -> Geometry | None:
    """bitwise_and …: integers and bool."""
    found = _promoted(x, y)
    return None if found is None or found[0].is_floating_point else elementwise(*found)


def binary_to_float(x: Any, y: Any) -> Geometry | None:
    """div, atan2: integers become the default floating type."""
    found = _promoted(x, y)
    if found is None:
        return None
    dtype = _float_of(found[0])
    return None if dtype is None else elementwise(dtype, found[1])


def rounded_division(x: Any, y: Any, *, rounding_mode: str | None = None) -> Geometry | None:
    """div with a rounding mode: integers stay integers."""
    return binary_to_float(x, y) if rounding_mode is None else binary(x, y)


def comparison(x: Any, y: Any) -> Geometry | None:
    """eq, lt, logical_and …"""
    found = _promoted(x, y)
    return None if found is None else elementwise(torch.bool, found[1])


def power(x: Any, y: Any) -> Geometry | None:
    """pow: floating results alone; negative integer exponents are left to torch."""
    found = _promoted(x, y)
    if found is None or not found[0].is_floating_point:
        return None
    return elementwise(*found)


def where(condition: Tensor, x: Any, y: Any) -> Geometry | None:
    """where.self: the promoted type of the two values."""
    found = _promoted(x, y)
    if found is None or condition.dtype is not torch.bool:
        return None
    return elementwise(found[0], (condition, *found[1]))


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Geometry | None:
    """masked_fill: the type of `x`; the layout of `x` when the mask only expands to it."""
    if mask.dtype is not torch.bool or broadcast_sizes([tuple(x.shape), tuple(mask.shape)]) is None:
        return None
    return elementwise(x.dtype, (x, mask)) if x.is_contiguous() else None


# -- reductions, normalisation, products -----------------------------------------------------------------------------


def _reduced_size(x: Tensor, dims: Any, keepdim: bool) -> tuple[int, ...] | None:
    if isinstance(dims, int):
        dims = (dims,)
    rank = x.dim()
    if not dims:
        dims = range(rank)
    elif rank == 0 or not all(-rank <= dim < rank for dim in dims):
        return None
    chosen = {dim % rank for dim in dims}
    if len(chosen) != len(dims):
        return None
    if keepdim:
        return tuple(1 if dim in chosen else extent for dim, extent in enumerate(x.shape))
    return tuple(extent for dim, extent in enumerate(x.shape) if dim not in chosen)


def mean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Geometry | None:
    """mean over dimensions of a floating tensor."""
    size = _reduced_size(x, dim, keepdim)
    result = dtype or x.dtype
    return None if size is None or not result.is_floating_point else contiguous(result, size)


def total(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Geometry | None:
    """sum over dimensions: integers and bool are summed in int64."""
    size = _reduced_size(x, dim, keepdim)
    if size is None or x.dtype.is_complex:
        return None
    natural = x.dtype if x.dtype.is_floating_point else torch.int64
    return contiguous(dtype or natural, size)


def extreme(x: Tensor, dim: Any = (), keepdim: bool = False) -> Geometry | None:
    """amax, amin; empty reductions are left to torch, which refuses them."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or x.numel() == 0 else contiguous(x.dtype, size)


def layer_norm(
    x: Tensor, normalized: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Geometry, ...] | None:
    """native_layer_norm on the CPU: (output, mean, reciprocal standard deviation), all contiguous."""
    axis = x.dim() - len(normalized)
    parameters = [p for p in (weight, bias) if p is not None]
    if x.device.type != "cpu" or axis < 0 or tuple(x.shape[axis:]) != tuple(normalized):
        return None
    if any(p.dtype != x.dtype or tuple(p.shape) != tuple(normalized) for p in parameters):
        return None
    statistics = contiguous(x.dtype, (*x.shape[:axis], *(1 for _ in normalized)))
    return contiguous(x.dtype, x.shape), statistics, statistics


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """native_batch_norm in inference on the CPU: the saved statistics are empty."""
    if training or x.device.type != "cpu" or not (x.is_contiguous() or is_channels_last(x)):
        return None
    if any(p is not None and p.dtype != x.dtype for p in (weight, bias, mean, variance)):
        return None
    empty = contiguous(x.dtype, (0,))
    return Geometry(x.dtype, tuple(x.shape), x.stride()), empty, empty


def is_channels_last(x: Tensor) -> bool:
    """A dense image batch whose channels are innermost."""
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)


def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Geometry | None:
    """bias + a @ b for matrices of one type."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        return None
    if not (bias.dtype == a.dtype == b.dtype):
        return None
    size = (a.shape[0], b.shape[1])
    if broadcast_sizes([tuple(bias.shape), size]) != size:
        return None
    return contiguous(a.dtype, size)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Geometry | None:
    """Concatenation of contiguous tensors of one type and rank."""
    first = tensors[0]
    rank = first.dim()
    if rank == 0 or not -rank <= dim < rank:
        return None
    axis = dim % rank
    size = list(first.shape)
    for other in tensors[1:]:
        if other.dtype != first.dtype or other.dim() != rank:
            return None
        if any(other.shape[d] != size[d] for d in range(rank) if d != axis):
            return None
        size[axis] += other.shape[axis]
    return contiguous(first.dtype, size) if all(t.is_contiguous() for t in tensors) else None


def arange(*bounds: Any, dtype: torch.dtype | None = None, **options: Any) -> Geometry | None:
    """A range of integers; floating ranges are left to torch, which rounds."""
    if not all(isinstance(bound, int) for bound in bounds):
        return None
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0 or (end - start) * step < 0:
        return None
    return contiguous(dtype or torch.int64, (math.ceil((end - start) / step),))


# -- the table -------------------------------------------------------------------------------------------------------


def _named(rule: Rule, names: str) -> dict[Any, Rule]:
    """`rule` for each operator in `names`, written `name` or `name.overload`."""
    rows = {}
    for name in names.split():
        packet, _, overload = name.partition(".")
        rows[getattr(getattr(aten, packet), overload or "default")] = rule
    return rows


RULES: dict[Any, Rule] = {
    **_named(
        unary_to_float,
        "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh"
        " sqrt rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma",
    ),
    **_named(
        unary_float_only,
        "gelu silu hardswish hardsigmoid hardtanh elu leaky_relu softplus mish log_sigmoid_forward",
    ),
    **_named(unary_same, "neg abs relu floor ceil trunc round sign bitwise_not"),
    **_named(unary_to_bool, "logical_not isnan isinf"),
    **_named(bounded, "clamp clamp_min clamp_max"),
    **_named(binary, "add.Tensor add.Scalar sub.Tensor sub.Scalar remainder.Tensor remainder.Scalar fmod.Tensor"),
    **_named(binary, "fmod.Scalar floor_divide.default"),
    **_named(binary_or_bool, "mul.Tensor mul.Scalar maximum minimum"),
    **_named(
        binary_bitwise,
        "bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor",
    ),
    **_named(binary_to_float, "div.Tensor div.Scalar atan2"),
    **_named(rounded_division, "div.Tensor_mode div.Scalar_mode"),
    **_named(
        comparison,
        "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar"
        " ge.Tensor ge.Scalar logical_and logical_or logical_xor",
    ),
    **_named(power, "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar"),
    **_named(where, "where.self"),
    **_named(masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    **_named(mean, "mean.dim mean"),
    **_named(total, "sum.dim_IntList sum"),
    **_named(extreme, "amax amin"),
    **_named(layer_norm, "native_layer_norm"),
    **_named(batch_norm, "native_batch_norm"),
    **_named(addmm, "addmm"),
    **_named(cat, "cat"),
    **_named(arange, "arange.start_step"),
}
