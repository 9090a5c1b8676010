"""Functions of torch whose C++ takes sizes as plain numbers, or makes views of what it knows of
memory: written in operators that take symbols, and that can be compiled.

Each has the parameters of the one that it stands for, and gives NotImplemented where it does not
cover a call, which then makes the sizes constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.formulas.helpers import Operator, aten
from fusewright.formulas.table import When, formula


@formula(torch.kron, torch.Tensor.kron, when=When.VARYING_SIZE)
def kron(x: Tensor, y: Tensor) -> Tensor:
    """`torch.kron`: each element of `x` times all of `y`."""
    rank = max(x.dim(), y.dim())
    x, y = (tensor.reshape(*[1] * (rank - tensor.dim()), *tensor.shape) for tensor in (x, y))
    left = x.reshape(list(chain.from_iterable((size, 1) for size in x.shape)))
    right = y.reshape(list(chain.from_iterable((1, size) for size in y.shape)))
    return (left * right).reshape([a * b for a, b in zip(x.shape, y.shape, strict=True)])


@formula(torch.take_along_dim, torch.Tensor.take_along_dim, when=When.VARYING_SIZE)
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    """`torch.take_along_dim`: all other dimensions are broadcast, and indices count around."""
    if dim is None or x.dim() != indices.dim() or not -x.dim() <= dim < x.dim():
        return NotImplemented
    dim %= x.dim()
    others = [[1 if d == dim else n for d, n in enumerate(tensor.shape)] for tensor in (x, indices)]
    common = torch.broadcast_shapes(*others)
    if others[0] != others[1]:
        x, indices = (
            tensor.expand(*common[:dim], tensor.shape[dim], *common[dim + 1 :])
            for tensor in (x, indices)
        )
    return x.gather(dim, indices.remainder(x.shape[dim]))


@formula(torch.gradient, when=When.VARYING_SIZE)
def gradient(x: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """`torch.gradient` of even steps: differences of neighbours at both ends, of those two apart
    between.
    """
    if not isinstance(spacing, int | float | torch.SymFloat) or edge_order != 1:
        return NotImplemented
    if not (x.is_floating_point() or x.is_complex()):
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else range(x.dim()) if dim is None else dim
    if any(x.shape[axis] < 3 for axis in dims):
        return NotImplemented
    return [_differences(x, axis) / spacing for axis in dims]


def _differences(x: Tensor, dim: int) -> Tensor:
    count = x.shape[dim]
    steps = x.narrow(dim, 1, count - 1) - x.narrow(dim, 0, count - 1)
    apart = (x.narrow(dim, 2, count - 2) - x.narrow(dim, 0, count - 2)) / 2
    return torch.cat([steps.narrow(dim, 0, 1), apart, steps.narrow(dim, count - 2, 1)], dim)


@formula(torch.cov, torch.Tensor.cov, when=When.VARYING_SIZE)
def cov(
    x: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """`torch.cov` without weights: products of the rows' distances from their means."""
    if fweights is not None or aweights is not None or x.dim() > 2 or x.dtype is torch.bool:
        return NotImplemented
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    count = rows.shape[1]
    if count <= correction:
        return NotImplemented
    distances = rows - (rows.sum(1) / count).unsqueeze(1)
    return (distances @ distances.t().conj() / (count - correction)).squeeze()


@formula(torch.corrcoef, torch.Tensor.corrcoef, when=When.VARYING_SIZE)
def corrcoef(x: Tensor) -> Any:
    """`torch.corrcoef`: covariances, each divided by both standard deviations."""
    result = cov(x)
    if result is NotImplemented or x.is_complex():
        return NotImplemented
    if result.dim() == 0:
        return result / result
    deviations = result.diagonal().sqrt()
    return (result / deviations.unsqueeze(1) / deviations).clip(-1, 1)


@formula(torch.quantile, torch.Tensor.quantile, when=When.VARYING_SIZE)
def quantile(
    x: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Any:
    """`torch.quantile` at one place: between the two elements, in order, that are next to it."""
    if isinstance(q, Tensor) or not 0 <= q <= 1 or interpolation != "linear" or out is not None:
        return NotImplemented
    if x.dtype not in (torch.float32, torch.float64) or x.numel() == 0:
        return NotImplemented
    ordered = x.flatten().sort().values if dim is None else x.movedim(dim, -1).sort().values
    last = ordered.shape[-1] - 1 if ordered.dim() else 0
    place = torch.full((), q, dtype=x.dtype, device=x.device) * last
    is_unknown = ordered.isnan().any(-1, keepdim=True)
    places = torch.where(is_unknown, last, place)
    below, above = (ordered.gather(-1, at.long()) for at in (places.floor(), places.ceil()))
    result = torch.lerp(below, above, places - places.floor())
    if not keepdim:
        return result.squeeze(-1)
    return result.reshape([1] * x.dim()) if dim is None else result.movedim(-1, dim)


@formula(torch.trace, torch.Tensor.trace, when=When.ANY_CALL)
def trace(x: Tensor) -> Any:
    """`torch.trace` where a gradient is asked for: its C++ takes plain sizes, in some versions of
    torch. The CPU has none of half types.
    """
    is_differentiated = torch.is_grad_enabled() and x.requires_grad
    varies = any(isinstance(size, torch.SymInt) for size in x.shape)
    if not (is_differentiated and varies) or x.dim() != 2 or x.itemsize < 4:
        return NotImplemented
    return x.diagonal().sum()


@formula(torch.Tensor.fill_diagonal_, when=When.ANY_CALL)
def fill_diagonal_(x: Tensor, value: Any, wrap: bool = False) -> Any:
    """`Tensor.fill_diagonal_`, whose places eager shows by strides of its own, as if all memory
    between the elements of `x` were part of it.
    """
    is_cube = all(size == x.shape[0] for size in x.shape)
    if x.dim() < 2 or (x.dim() > 2 and not is_cube) or (wrap and x.shape[0] > x.shape[1] + 1):
        return NotImplemented
    places = x
    while places.dim() > 1:
        places = places.diagonal(0, 0, places.dim() - 1)
    places.fill_(value)
    return x


_WEIGHING: Final = {
    ("linear", False): aten.upsample_linear1d.default,
    ("bilinear", False): aten.upsample_bilinear2d.default,
    ("bilinear", True): aten._upsample_bilinear2d_aa.default,
    ("trilinear", False): aten.upsample_trilinear3d.default,
    ("bicubic", False): aten.upsample_bicubic2d.default,
    ("bicubic", True): aten._upsample_bicubic2d_aa.default,
}
"""The operators that resample by weighing neighbours, by mode, and by whether they smooth first."""


@formula(torch.nn.functional.interpolate, torch.nn.functional.upsample, when=When.VARYING_SIZE)
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """`torch.nn.functional.interpolate`, by the operator that eager calls: where torch writes it in
    others it subtracts neighbours, and gives NaN beside an infinite one. Torch has checked the
    arguments.
    """
    operator: Operator | None = _WEIGHING.get((mode, antialias))
    if operator is None:
        return NotImplemented
    count = input.dim() - 2
    factors: Any = _one_each(scale_factor, count)
    sizes: Any = _resampled_sizes(input, factors) if size is None else _one_each(size, count)
    if recompute_scale_factor:
        factors = [None] * count
    with torch_compat.without_python_kernels():
        return operator(input, sizes, bool(align_corners), *factors)


def _resample_whole(
    operator: Operator,
    input: Tensor,
    sizes: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None,
) -> Any:
    """The same where the call comes whole, as under inference mode."""
    if not torch_compat.has_symbolic_geometry(input):
        return NotImplemented
    each: Any = [None] * (input.dim() - 2) if factors is None else factors
    sizes = _resampled_sizes(input, each) if sizes is None else sizes
    return operator(input, sizes, align_corners, *each)


for _operator in _WEIGHING.values():
    formula(_operator.overloadpacket.vec, when=When.EVERYWHERE)(partial(_resample_whole, _operator))


def _resampled_sizes(x: Tensor, factors: Sequence[float]) -> list[int]:
    """The sizes of an image that is resampled by a factor a dimension."""
    pairs = zip(x.shape[2:], factors, strict=True)
    return [torch.sym_int(length * factor) for length, factor in pairs]


def _one_each(value: Any, count: int) -> list[Any]:
    """A number, or None, for each of `count` dimensions, which may share one."""
    return list(value) if isinstance(value, Sequence) else [value] * count
