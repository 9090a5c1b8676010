"""Geometry of matrix products, attention, pooling and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.fake_rules.geometry import (
    Geometry,
    Rule,
    broadcast_sizes,
    channels_last,
    contiguous,
    elementwise,
    is_channels_last,
    named,
    rough,
    suggests_channels_last,
)


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


def baddbmm(
    bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Geometry | None:
    """bias + a @ b for batches of matrices of one type."""
    product = bmm(a, b)
    if product is None or bias.dtype != a.dtype:
        return None
    if broadcast_sizes([tuple(bias.shape), product.size]) != product.size:
        return None
    return product


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


def attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    """_scaled_dot_product_flash_attention_for_cpu: (output like the query, logarithms [batch,
    heads, length]).
    """
    batch, heads, length, _ = query.shape
    output = elementwise(query.dtype, (query,))
    dtype = query.dtype if query.dtype is torch.float64 else torch.float32
    logarithms = Geometry(dtype, (batch, heads, length), (length * heads, 1, heads))
    return None if output is None or query.numel() == 0 else (output, logarithms)


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


def max_unpool(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Geometry | None:
    """max_unpool2d of a batch of images: on the CPU, laid out as they are."""
    if x.device.type != "cpu" or x.dim() != 4 or len(output_size) != 2 or x.shape != indices.shape:
        return None
    layout = channels_last if suggests_channels_last(x) else contiguous
    return layout(x.dtype, (*x.shape[:2], *output_size))


def windows(
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Geometry | None:
    """im2col of an image or a batch: contiguous on the CPU and a GPU, where torch's own rule leaves
    a view of transposed memory if there is one window in a row or column.
    """
    parameters = (kernel, dilation, padding, stride)
    if x.device.type not in ("cpu", "cuda") or x.dim() not in (3, 4) or x.numel() == 0:
        return None
    if any(len(values) != 2 for values in parameters) or min(*kernel, *dilation, *stride) < 1:
        return None
    count = 1
    for axis in range(2):
        k, d, p, s = (values[axis] for values in parameters)
        along = (x.shape[axis - 2] + 2 * p - d * (k - 1) - 1) // s + 1
        if p < 0 or along < 1:
            return None
        count *= along
    size = (*x.shape[:-3], x.shape[-3] * kernel[0] * kernel[1], count)
    return contiguous(x.dtype, size)


def resampled(x: Tensor, output_size: Sequence[int], *parameters: Any) -> Geometry | None:
    """upsample_nearest2d and its like: on the CPU row-major, or with the channels last of images
    and volumes where their strides suggest that.

    Torch's meta kernels raise TypeError where the batch has no elements, and take no symbolic
    sizes: of such the rule is one for any device.
    """
    if not x.dtype.is_floating_point:
        return None
    is_told = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not (is_told or torch_compat.has_symbolic_geometry(x) or x.numel() == 0):
        return None
    if len(output_size) != x.dim() - 2 or any(size < 1 for size in output_size):
        return None
    if any(size == 0 for size in x.shape[1:]):
        sizes = [*map(int, x.shape)]
        raise RuntimeError(
            f"Non-empty {x.dim()}D data tensor expected but got a tensor with sizes {sizes}"
        )
    size = (*x.shape[:2], *output_size)
    if suggests_channels_last(x):
        return channels_last(x.dtype, size)
    return contiguous(x.dtype, size)


def resampled_gradient(
    gradient: Tensor, output_size: Sequence[int], input_size: Sequence[int], *parameters: Any
) -> Geometry:
    """The gradient of resampling by a rule that keeps channels last, on any device: torch's meta
    kernels take no symbolic sizes.
    """
    layout = channels_last if suggests_channels_last(gradient) else contiguous
    return layout(gradient.dtype, tuple(input_size))


def row_major_gradient(
    gradient: Tensor, output_size: Sequence[int], input_size: Sequence[int], *parameters: Any
) -> Geometry:
    """The gradient of resampling by the other rules, whose results are row-major."""
    return contiguous(gradient.dtype, tuple(input_size))


def shuffled_pixels(x: Tensor, factor: int) -> Geometry | None:
    """pixel_shuffle of images whose strides suggest that their channels are last: on the CPU they
    stay so, where torch's meta kernel is row-major.
    """
    if x.device.type != "cpu" or x.dim() != 4 or factor < 1 or not suggests_channels_last(x):
        return None
    n, channels, height, width = x.shape
    if channels % factor**2:
        return None
    size = (n, channels // factor**2, height * factor, width * factor)
    return channels_last(x.dtype, size)


def padded_by_its_edges(x: Tensor, padding: Sequence[int]) -> Geometry | None:
    """replication_pad2d, and its like of volumes: as `shuffled_pixels`."""
    if x.device.type != "cpu" or not suggests_channels_last(x) or x.numel() == 0:
        return None
    if len(padding) != 2 * (x.dim() - 2):
        return None
    sizes = list(x.shape)
    for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), 1):
        sizes[-dim] += before + after
        if sizes[-dim] < 1:
            return None
    return channels_last(x.dtype, sizes)


def reflected(x: Tensor, padding: Sequence[int]) -> Geometry | None:
    """reflection_pad2d: likewise, where there is as much to reflect."""
    sizes = [size for size in reversed(x.shape) for _ in range(2)]
    fits = all(pad < size for pad, size in zip(padding, sizes, strict=False))
    return padded_by_its_edges(x, padding) if fits else None


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
    channels_in, channels_out = (weight.shape[0], weight.shape[1] * groups)
    if not transposed:
        channels_in, channels_out = (weight.shape[1] * groups, weight.shape[0])
    if x.shape[1] != channels_in or weight.shape[0] % groups:
        return None
    if bias is not None and (bias.dtype != x.dtype or tuple(bias.shape) != (channels_out,)):
        return None
    sizes = [x.shape[0], channels_out]
    for axis in range(rank):
        s, p, d, extra = (
            values[axis] if len(values) > 1 else values[0]
            for values in (stride, padding, dilation, output_padding)
        )
        if s <= 0 or d <= 0 or weight.shape[2 + axis] == 0:
            return None
        reach = d * (weight.shape[2 + axis] - 1) + 1
        extent = x.shape[2 + axis]
        if transposed:
            sizes.append((extent - 1) * s - 2 * p + reach + extra)
        elif extent + 2 * p >= reach:
            sizes.append((extent + 2 * p - reach) // s + 1)
        else:
            return None
    if any(size <= 0 for size in sizes):
        return None
    x, weight, bias = (x, weight, bias) if rank == 3 else map(_as_seen, (x, weight, bias))
    layout = torch_compat.convolution_memory_format(
        x,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    if layout is torch.contiguous_format:
        return contiguous(x.dtype, sizes)
    return channels_last(x.dtype, sizes)


def convolution_gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    *settings_and_wanted: Any,
) -> tuple[Geometry | None, ...] | None:
    """convolution_backward on a GPU: gradients are laid out by the arguments, whatever the layout
    of `gradient` is, which torch's meta kernel went by until 2.12. The last argument says which
    gradients are wanted; the others are settings of the convolution.
    """
    *settings, wanted = settings_and_wanted
    rank = x.dim() - 2
    if x.device.type != torch_compat.cuda.TYPE or rank < 2 or gradient.numel() == 0:
        return None
    x_seen, weight_seen = (x, weight) if rank == 3 else (_as_seen(x), _as_seen(weight))
    layout = torch_compat.convolution_memory_format(x_seen, weight_seen, None, *settings)
    lay_out = contiguous if layout is torch.contiguous_format else channels_last
    return (
        lay_out(gradient.dtype, x.shape) if wanted[0] else None,
        lay_out(gradient.dtype, weight.shape) if wanted[1] else None,
        contiguous(gradient.dtype, bias_sizes or ()) if wanted[2] else None,
    )


def _as_seen(x: Any) -> Any:
    """A fake with the sizes seen when compiling. Which library runs a convolution of images may
    depend on sizes, but not the layout of its result.
    """
    if x is None or not torch_compat.has_symbolic_geometry(x):
        return x
    size, stride = map(rough, x.shape), map(rough, x.stride())
    meta = torch.empty_strided(tuple(size), tuple(stride), dtype=x.dtype, device="meta")
    return x.fake_mode.wrap(meta, x.device)


def eigenvectors(x: Tensor) -> tuple[Geometry, Geometry] | None:
    """Complex eigenvalues, and eigenvectors whose columns lie together, as LAPACK leaves them; on a
    GPU their rows do.
    """
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or not (x.is_floating_point() or x.is_complex()):
        return None
    dtype = x.dtype.to_complex()
    lays_out = _by_columns if x.device.type == "cpu" else contiguous
    return contiguous(dtype, x.shape[:-1]), lays_out(dtype, x.shape)


def singular_vectors(
    x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Geometry, Geometry, Geometry] | None:
    """U, the real singular values and Vh, whose columns both lie together, as LAPACK leaves them;
    cuSOLVER gives Vh by rows.
    """
    if x.device.type != "cpu" or x.dim() < 2 or not compute_uv or driver is not None:
        return None
    if not (x.is_floating_point() or x.is_complex()):
        return None
    *batch, m, n = x.shape
    k = torch.sym_min(m, n)
    u, vh = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    return (
        _by_columns(x.dtype, (*batch, *u)),
        contiguous(x.dtype.to_real(), (*batch, k)),
        _by_columns(x.dtype, (*batch, *vh)),
    )


def _by_columns(dtype: torch.dtype, size: Sequence[int]) -> Geometry:
    """Matrices one after another, the columns of each too."""
    *batch, m, n = size
    stride = contiguous(dtype, (*batch, n, m)).stride
    return Geometry(dtype, tuple(size), (*stride[:-2], stride[-1], stride[-2]))


RULES: dict[Any, Rule] = {
    **named(mm, "mm"),
    **named(bmm, "bmm"),
    **named(baddbmm, "baddbmm"),
    **named(addmm, "addmm"),
    **named(attention, "_scaled_dot_product_flash_attention_for_cpu"),
    **named(max_pool, "max_pool2d_with_indices"),
    **named(max_unpool, "max_unpool2d"),
    **named(windows, "im2col"),
    **named(
        resampled,
        """
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
        upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
        """,
    ),
    **named(
        resampled_gradient,
        """
        upsample_nearest2d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward
        _upsample_bilinear2d_aa_backward
        """,
    ),
    **named(
        row_major_gradient,
        """
        upsample_nearest1d_backward upsample_nearest3d_backward upsample_linear1d_backward
        upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward
        """,
    ),
    **named(shuffled_pixels, "pixel_shuffle"),
    **named(reflected, "reflection_pad2d reflection_pad3d"),
    **named(padded_by_its_edges, "replication_pad2d replication_pad3d"),
    **named(convolution, "convolution"),
    **named(convolution_gradients, "convolution_backward"),
    **named(eigenvectors, "linalg_eig"),
    **named(singular_vectors, "_linalg_svd"),
}
