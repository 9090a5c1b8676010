"""Geometry of Fourier transforms on the CPU: torch's meta kernels are wrong for some layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.fake_rules.geometry import Geometry, Rule, contiguous, named


def real_to_complex(
    x: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Geometry | None:
    """The transform of real numbers; of the last of `dim`, only one half if `onesided`."""
    if x.is_complex() or not _is_usual(x, dim):
        return None
    size = list(x.shape)
    if onesided:
        size[dim[-1]] = size[dim[-1]] // 2 + 1
    order = [*_outermost_first(x.stride(), dim[:-1]), dim[-1]]
    return _transformed(x.dtype.to_complex(), size, x.stride(), order)


def complex_to_complex(
    x: Tensor, dim: Sequence[int], normalization: int, forward: bool
) -> Geometry | None:
    """The transform of complex numbers."""
    if not x.is_complex() or not _is_usual(x, dim):
        return None
    return _transformed(x.dtype, list(x.shape), x.stride(), _outermost_first(x.stride(), dim))


def complex_to_real(
    x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Geometry | None:
    """The transform to `last_dim_size` real numbers along the last of `dim`, from one half; the
    other dimensions are transformed before.
    """
    if not x.is_complex() or not _is_usual(x, dim):
        return None
    strides = x.stride()
    if len(dim) > 1:
        before = complex_to_complex(x, dim[:-1], normalization, False)
        assert before is not None
        strides = before.stride
    size = list(x.shape)
    size[dim[-1]] = last_dim_size
    return _transformed(x.dtype.to_real(), size, strides, [dim[-1]])


def _is_usual(x: Tensor, dim: Sequence[int]) -> bool:
    return x.device.type == "cpu" and len(dim) > 0 and x.numel() > 0


def _outermost_first(strides: Sequence[int], dims: Sequence[int]) -> list[int]:
    return sorted(dims, key=lambda d: -strides[d])


def _transformed(
    dtype: torch.dtype, size: list[int], strides: Sequence[int], dims: Sequence[int]
) -> Geometry:
    """The result of one call of the library along `dims`, of a tensor with `strides`: dense, with
    `dims` innermost, in that order, where the library is MKL; its batch lies as the input's.
    """
    if not torch.backends.mkl.is_available():
        return contiguous(dtype, size)
    batch = [d for d in range(len(size)) if d not in dims]
    order = [*_outermost_first(strides, batch), *dims]
    inner = contiguous(dtype, [size[d] for d in order]).stride
    stride_of: dict[int, Any] = dict(zip(order, inner, strict=True))
    return Geometry(dtype, tuple(size), tuple(stride_of[d] for d in range(len(size))))


RULES: dict[Any, Rule] = {
    **named(real_to_complex, "_fft_r2c"),
    **named(complex_to_complex, "_fft_c2c"),
    **named(complex_to_real, "_fft_c2r"),
}
