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

from fusewright import torch_compat

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
            return channels_last(dtype, size)
        if all(other.stride() == stride for other in operands[1:]) and is_dense(size, stride):
            return Geometry(dtype, size, stride)
    else:
        broadcast = broadcast_sizes([tuple(operand.shape) for operand in operands])
        if broadcast is None:
            return None
        size = broadcast
    rank = len(size)
    strides = [
        [0] * (rank - operand.dim())
        + [
            0 if extent == 1 and size[rank - operand.dim() + dim] != 1 else operand.stride(dim)
            for dim, extent in enumerate(operand.shape)
        ]
        for operand in operands
        if operand.dim()
    ]
    return ordered_by_strides(dtype, size, strides)


def ordered_by_strides(
    dtype: torch.dtype, size: tuple[int, ...], operands: Sequence[Sequence[int]]
) -> Geometry:
    """A dense geometry whose dimensions are in the order in which operands of these strides visit memory."""
    rank = len(size)

    def comes_later(a: int, b: int) -> int:
        """Whether dimension `a` is outside dimension `b`: 1 yes, -1 no, 0 the operands do not tell."""
        for strides in operands:
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
    """The type that torch computes `x op y` in, and the tensors among the two; None for complex numbers."""
    tensors = tuple(operand for operand in (x, y) if isinstance(operand, Tensor))
    if not all(isinstance(operand, Tensor) or _is_number(operand) for operand in (x, y)):
        return None
    if len(tensors) == 2 and x.dtype == y.dtype:
        dtype = x.dtype
    else:
        # On the tensors inside: on a subclass torch would dispatch even this question.
        dtype = torch.result_type(getattr(x, "meta_tensor", x), getattr(y, "meta_tensor", y))
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
    """A range of numbers: ceil((end - start) / step) of them."""
    if not all(_is_number(bound) for bound in bounds):
        return None
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0 or (end - start) * step < 0:
        return None
    if all(isinstance(bound, int) for bound in bounds):
        return contiguous(dtype or torch.int64, (-((start - end) // step),))
    if dtype is not None and not dtype.is_floating_point:
        return None
    return contiguous(dtype or torch.get_default_dtype(), (math.ceil((end - start) / step),))


def sized(
    size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """rand, ones …: a fresh contiguous tensor of the default type."""
    if options.get("memory_format") is not None or options.get("layout") not in (None, torch.strided):
        return None
    return contiguous(dtype or torch.get_default_dtype(), size)


def random_integers(*arguments: Any, dtype: torch.dtype | None = None, **options: Any) -> Geometry:
    """randint(high, size) and randint(low, high, size)."""
    return contiguous(dtype or torch.int64, arguments[-1])


def permutation(n: int, *, dtype: torch.dtype | None = None, **options: Any) -> Geometry:
    """randperm(n)."""
    return contiguous(dtype or torch.int64, (n,))


def identity(
    n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry:
    """eye(n), eye(n, m)."""
    return contiguous(dtype or torch.get_default_dtype(), (n, n if m is None else m))


def evenly_spaced(
    start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any
) -> Geometry | None:
    """linspace with numbers for its ends."""
    if not (_is_number(start) and _is_number(end)):
        return None
    return contiguous(dtype or torch.get_default_dtype(), (steps,))


def triangle(x: Tensor, diagonal: int = 0) -> Geometry | None:
    """tril, triu."""
    return contiguous(x.dtype, x.shape) if x.is_contiguous() and x.dim() >= 2 else None


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


def preserved(
    x: Tensor, *values: Any, dtype: torch.dtype | None = None, memory_format: Any = None, **options: Any
) -> Geometry | None:
    """zeros_like, full_like …: the layout of the model tensor, its gaps closed."""
    if options.get("layout") not in (None, torch.strided):
        return None
    if memory_format is torch.contiguous_format:
        return contiguous(dtype or x.dtype, x.shape)
    if memory_format not in (None, torch.preserve_format):
        return None
    return elementwise(dtype or x.dtype, (x,))


def same_contiguous(x: Tensor, *parameters: Any) -> Geometry | None:
    """_softmax and _log_softmax without a change of type: contiguous whatever the input's layout."""
    if parameters[1:] != (False,) or not x.dtype.is_floating_point:
        return None
    return contiguous(x.dtype, x.shape)


def running(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Geometry | None:
    """cumsum, cumprod: integers are accumulated in int64."""
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        return None
    natural = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
    return contiguous(dtype or natural, x.shape)


def truth(x: Tensor, dim: Any = None, keepdim: bool = False) -> Geometry | None:
    """any, all: bool; uint8 is left to torch."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or x.dtype is torch.uint8 else contiguous(torch.bool, size)


def position(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Geometry | None:
    """argmax, argmin: int64 indices; empty ones are left to torch, which refuses them."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or x.numel() == 0 else contiguous(torch.int64, size)


def extreme_with_position(
    x: Tensor, dim: int, keepdim: bool = False
) -> tuple[Geometry, Geometry] | None:
    """max.dim, min.dim: values and their int64 indices."""
    size = _reduced_size(x, dim, keepdim)
    if size is None or x.numel() == 0:
        return None
    return contiguous(x.dtype, size), contiguous(torch.int64, size)


def variance(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Geometry | None:
    """var, std of floating tensors."""
    size = _reduced_size(x, dim, keepdim)
    return None if size is None or not x.dtype.is_floating_point else contiguous(x.dtype, size)


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    c: int,
    spatial: int,
    groups: int,
    eps: float,
) -> tuple[Geometry, ...] | None:
    """native_group_norm of a contiguous tensor: (output, mean, reciprocal standard deviation)."""
    if x.device.type != "cpu" or not x.is_contiguous() or is_channels_last(x):
        return None
    if any(p is not None and p.dtype != x.dtype for p in (weight, bias)) or c % groups:
        return None
    statistics = contiguous(x.dtype, (n, groups))
    return contiguous(x.dtype, x.shape), statistics, statistics


def mm(a: Tensor, b: Tensor) -> Geometry | None:
    """a @ b for matrices of one type."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        return None
    return contiguous(a.dtype, (a.shape[0], b.shape[1]))


def bmm(a: Tensor, b: Tensor) -> Geometry | None:
    """a @ b for batches of matrices of one type."""
    if a.dim() != 3 or b.dim() != 3 or a.dtype != b.dtype:
        return None
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    return contiguous(a.dtype, (a.shape[0], a.shape[1], b.shape[2]))


def baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Geometry | None:
    """bias + a @ b for batches of matrices of one type."""
    product = bmm(a, b)
    if product is None or bias.dtype != a.dtype:
        return None
    if broadcast_sizes([tuple(bias.shape), product.size]) != product.size:
        return None
    return product


def attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    """_scaled_dot_product_flash_attention_for_cpu: (output like the query, logarithms [batch, heads, length])."""
    batch, heads, length, _ = query.shape
    output = elementwise(query.dtype, (query,))
    dtype = query.dtype if query.dtype is torch.float64 else torch.float32
    logarithms = Geometry(dtype, (batch, heads, length), (length * heads, 1, heads))
    return None if output is None or query.numel() == 0 else (output, logarithms)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Geometry | None:
    """stack of contiguous tensors of one type and size."""
    first = tensors[0]
    rank = first.dim() + 1
    if not -rank <= dim < rank:
        return None
    if any(t.dtype != first.dtype or t.shape != first.shape or not t.is_contiguous() for t in tensors):
        return None
    axis = dim % rank
    return contiguous(first.dtype, (*first.shape[:axis], len(tensors), *first.shape[axis:]))


def repeat(x: Tensor, times: Sequence[int]) -> Geometry | None:
    """repeat: `times` may have more dimensions than `x`."""
    if len(times) < x.dim() or any(count < 0 for count in times):
        return None
    sizes = (*(1 for _ in range(len(times) - x.dim())), *x.shape)
    return contiguous(x.dtype, [size * count for size, count in zip(sizes, times)])


def padded(x: Tensor, pad: Sequence[int], value: Any = 0) -> Geometry | None:
    """constant_pad_nd of a contiguous tensor; `pad` begins with the last dimension."""
    if not x.is_contiguous() or is_channels_last(x) or len(pad) % 2 or len(pad) > 2 * x.dim():
        return None
    sizes = list(x.shape)
    for position, (before, after) in enumerate(zip(pad[::2], pad[1::2]), 1):
        sizes[-position] += before + after
    return contiguous(x.dtype, sizes) if all(size > 0 for size in sizes) else None


def embedding(weight: Tensor, indices: Tensor, *options: Any) -> Geometry | None:
    """Rows of `weight` by `indices`."""
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return contiguous(weight.dtype, (*indices.shape, weight.shape[1]))


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Geometry | None:
    """gather: the sizes of the index."""
    rank = x.dim()
    if rank == 0 or index.dim() != rank or index.dtype not in (torch.int64, torch.int32):
        return None
    others = (d for d in range(rank) if d != dim % rank)
    if not -rank <= dim < rank or any(index.shape[d] > x.shape[d] for d in others):
        return None
    return contiguous(x.dtype, index.shape)


def index_select(x: Tensor, dim: int, index: Tensor) -> Geometry | None:
    """index_select: as many along `dim` as the index has."""
    rank = x.dim()
    if rank == 0 or index.dim() != 1 or not -rank <= dim < rank:
        return None
    if index.dtype not in (torch.int64, torch.int32):
        return None
    axis = dim % rank
    return contiguous(x.dtype, (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]))


def advanced_index(x: Tensor, indices: Sequence[Tensor | None]) -> Geometry | None:
    """index.Tensor by integers. Indexed dimensions that are not neighbours move to the front.

    Source: the published behaviour of advanced indexing, which runs one TensorIterator over the source, its indexed
    dimensions replaced by the indices' with stride 0, and the indices.
    """
    chosen = [dim for dim, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not given or any(index.dtype not in (torch.int64, torch.int32) for index in given):
        return None
    if len(indices) > x.dim():
        return None
    shape = broadcast_sizes([tuple(index.shape) for index in given])
    if shape is None:
        return None
    neighbours = chosen[-1] - chosen[0] + 1 == len(chosen)
    before = range(chosen[0]) if neighbours else range(0)
    rest = [dim for dim in range(x.dim()) if dim not in chosen and dim not in before]
    size = (*(x.shape[d] for d in before), *shape, *(x.shape[d] for d in rest))
    source = [*(x.stride(d) for d in before), *(0 for _ in shape), *(x.stride(d) for d in rest)]
    operands = [source]
    for index in given:
        lead = len(shape) - index.dim()
        own = [
            0 if extent == 1 and shape[lead + d] != 1 else index.stride(d)
            for d, extent in enumerate(index.shape)
        ]
        operands.append([0] * (len(before) + lead) + own + [0] * len(rest))
    return ordered_by_strides(x.dtype, size, operands)


def max_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Geometry, Geometry] | None:
    """max_pool2d_with_indices of a contiguous batch of images: values and int64 indices."""
    if ceil_mode or x.dim() != 4 or not x.is_contiguous() or is_channels_last(x) or x.numel() == 0:
        return None
    sizes = []
    for axis in range(2):
        k, s, p, d = (
            values[axis] if len(values) > 1 else values[0]
            for values in (kernel, stride or kernel, padding, dilation)
        )
        sizes.append((x.shape[2 + axis] + 2 * p - d * (k - 1) - 1) // s + 1)
        if s <= 0 or 2 * p > k or sizes[-1] < 1:
            return None
    size = (*x.shape[:2], *sizes)
    return contiguous(x.dtype, size), contiguous(torch.int64, size)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Geometry | None:
    """convolution; the layout is that of the library that runs it on the real device."""
    rank = x.dim() - 2
    if rank < 1 or weight.dim() != x.dim() or x.dtype != weight.dtype or x.numel() == 0:
        return None
    taken, given = (weight.shape[0], weight.shape[1] * groups)
    if not transposed:
        taken, given = (weight.shape[1] * groups, weight.shape[0])
    if x.shape[1] != taken or weight.shape[0] % groups:
        return None
    if bias is not None and (bias.dtype != x.dtype or tuple(bias.shape) != (given,)):
        return None
    sizes = [x.shape[0], given]
    for axis in range(rank):
        s, p, d, extra = (
            values[axis] if len(values) > 1 else values[0]
            for values in (stride, padding, dilation, output_padding)
        )
        reach = d * (weight.shape[2 + axis] - 1) + 1
        extent = x.shape[2 + axis]
        if transposed:
            sizes.append((extent - 1) * s - 2 * p + reach + extra)
        elif s > 0 and extent + 2 * p >= reach:
            sizes.append((extent + 2 * p - reach) // s + 1)
        else:
            return None
    if min(sizes) <= 0:
        return None
    layout = torch_compat.convolution_memory_format(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    if layout is torch.contiguous_format:
        return contiguous(x.dtype, sizes)
    return channels_last(x.dtype, sizes)


def channels_last(dtype: torch.dtype, size: Sequence[int]) -> Geometry:
    """Dense geometry with the second dimension innermost."""
    n, c, *spatial = size
    inner = contiguous(dtype, (n, *spatial, c)).stride
    return Geometry(dtype, tuple(size), (inner[0], inner[-1], *inner[1:-1]))


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
    **_named(binary, "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar remainder.Tensor remainder.Scalar fmod.Tensor"),
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
    **_named(arange, "arange arange.start arange.start_step"),
    **_named(sized, "rand randn ones zeros empty.memory_format"),
    **_named(random_integers, "randint randint.low"),
    **_named(permutation, "randperm"),
    **_named(identity, "eye eye.m"),
    **_named(evenly_spaced, "linspace"),
    **_named(triangle, "tril triu"),
    **_named(preserved, "zeros_like ones_like full_like empty_like rand_like randn_like"),
    **_named(same_contiguous, "_softmax _log_softmax"),
    **_named(running, "cumsum cumprod"),
    **_named(truth, "any any.dim any.dims all all.dim all.dims"),
    **_named(position, "argmax argmin"),
    **_named(extreme_with_position, "max.dim min.dim"),
    **_named(variance, "var.correction std.correction"),
    **_named(group_norm, "native_group_norm"),
    **_named(mm, "mm"),
    **_named(bmm, "bmm"),
    **_named(baddbmm, "baddbmm"),
    **_named(attention, "_scaled_dot_product_flash_attention_for_cpu"),
    **_named(stack, "stack"),
    **_named(repeat, "repeat"),
    **_named(padded, "constant_pad_nd"),
    **_named(embedding, "embedding"),
    **_named(gather, "gather"),
    **_named(index_select, "index_select"),
    **_named(advanced_index, "index.Tensor"),
    **_named(max_pool, "max_pool2d_with_indices"),
    **_named(convolution, "convolution"),
    **_named(fused, "addcmul addcdiv"),
    **_named(interpolated, "lerp.Scalar lerp.Tensor"),
    **_named(binary_to_float, "xlogy.Tensor special_xlog1py logaddexp"),
    **_named(power, "hypot copysign.Tensor"),
}
