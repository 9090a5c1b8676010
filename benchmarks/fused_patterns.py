"""Small programs that a compiler should fuse, each as large as memory bandwidth asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Make = Callable[[int], tuple[Tensor, ...]]

WIDTH = 2048
"""Elements of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A program, and what makes its inputs for a number of rows."""

    function: Callable[..., Tensor]
    make: Make
    is_drawn: bool = False
    """Whether it draws random numbers, so that results cannot be compared."""

    has_gradient: bool = True


PATTERNS: dict[str, Pattern] = {}


def pattern(
    make: Make, *, is_drawn: bool = False, has_gradient: bool = True
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Add a function to the patterns, under its name."""

    def add(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        PATTERNS[function.__name__] = Pattern(
            function=function, make=make, is_drawn=is_drawn, has_gradient=has_gradient
        )
        return function

    return add


# Inputs -------------------------------------------------------------------------------------------


def matrix(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, WIDTH),)


def two_matrices(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, WIDTH), torch.randn(rows, WIDTH))


def matrix_and_scale(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, WIDTH), torch.randn(WIDTH))


def matrix_and_affine(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, WIDTH), torch.randn(WIDTH), torch.randn(WIDTH))


def two_matrices_and_affine(rows: int) -> tuple[Tensor, ...]:
    return (*two_matrices(rows), torch.randn(WIDTH), torch.randn(WIDTH))


def scores(rows: int) -> tuple[Tensor, ...]:
    """Scores of attention: batch, heads, queries, keys."""
    queries = min(128, max(1, rows // 8))
    return (torch.randn(max(1, rows // 1024), 8, queries, WIDTH),)


def scores_and_mask(rows: int) -> tuple[Tensor, ...]:
    (values,) = scores(rows)
    return (values, torch.rand(values.shape[0], 1, 1, WIDTH) < 0.8)


def heads(rows: int) -> tuple[Tensor, ...]:
    """Queries by head, with the cosines and sines of their places."""
    places = min(128, rows)
    angles = torch.randn(places, 64)
    values = torch.randn(max(1, rows // 128), WIDTH // 128, places, 128)
    return (values, angles.cos(), angles.sin())


def classes(rows: int) -> tuple[Tensor, ...]:
    return (torch.randn(rows, WIDTH), torch.randint(0, WIDTH, (rows,)))


def image(rows: int) -> tuple[Tensor, ...]:
    """Images of 128 channels, a scale and a shift for each."""
    side = min(32, math.isqrt(8 * rows))  # two images are the fewest
    images = torch.randn(max(2, rows // 64), 128, side, side)
    return (images, torch.randn(128), torch.randn(128))


def image_channels_last(rows: int) -> tuple[Tensor, ...]:
    images, scale, shift = image(rows)
    return (images.to(memory_format=torch.channels_last), scale, shift)


def words(rows: int) -> tuple[Tensor, ...]:
    """Numbers of words, a table of words and one of places, a scale and a shift."""
    places, known = min(128, rows), min(1024, rows)
    numbers = torch.randint(0, known, (max(1, rows // 128), places))
    tables = (torch.randn(known, WIDTH), torch.randn(places, WIDTH))
    return (numbers, *tables, torch.randn(WIDTH), torch.randn(WIDTH))


# Pointwise ----------------------------------------------------------------------------------------


@pattern(matrix)
def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


@pattern(matrix_and_scale)
def bias_gelu_tanh(x: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(x + bias, approximate="tanh")


@pattern(two_matrices)
def swiglu(gate: Tensor, x: Tensor) -> Tensor:
    return functional.silu(gate) * x


@pattern(lambda rows: (torch.randn(rows, 2 * WIDTH),))
def geglu_halves(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return functional.gelu(gate) * value


@pattern(heads)
def rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


# Rows ---------------------------------------------------------------------------------------------


@pattern(matrix_and_affine)
def layer_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.layer_norm(x, (WIDTH,), scale, shift)


@pattern(
    lambda rows: (
        *two_matrices(rows),
        torch.randn(WIDTH),
        torch.randn(WIDTH),
        torch.randn(WIDTH),
    )
)
def bias_gelu_residual_layer_norm(
    x: Tensor, residual: Tensor, bias: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    return functional.layer_norm(functional.gelu(x + bias) + residual, (WIDTH,), scale, shift)


@pattern(matrix_and_scale)
def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return wide.to(x.dtype) * scale


@pattern(lambda rows: (*heads(rows), torch.randn(128)))
def rms_norm_rotary(x: Tensor, cosine: Tensor, sine: Tensor, scale: Tensor) -> Tensor:
    return rotary(rms_norm(x, scale), cosine, sine)


@pattern(scores)
def softmax(values: Tensor) -> Tensor:
    return values.softmax(-1)


@pattern(scores_and_mask)
def masked_softmax(values: Tensor, mask: Tensor) -> Tensor:
    return (values * 0.125).masked_fill(~mask, float("-inf")).softmax(-1)


@pattern(scores)
def causal_softmax(values: Tensor) -> Tensor:
    places = torch.arange(values.shape[-1], device=values.device)
    later = places > places[-values.shape[-2] :, None]
    return values.masked_fill(later, float("-inf")).softmax(-1)


@pattern(matrix)
def log_softmax(x: Tensor) -> Tensor:
    return x.log_softmax(-1)


@pattern(matrix)
def logsumexp(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


# Losses -------------------------------------------------------------------------------------------


@pattern(classes)
def cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(x, labels)


@pattern(classes)
def cross_entropy_smoothed(x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(x, labels, label_smoothing=0.1)


@pattern(two_matrices)
def mean_squared_error(x: Tensor, y: Tensor) -> Tensor:
    return functional.mse_loss(x, y)


@pattern(lambda rows: (torch.randn(rows, WIDTH), torch.rand(rows, WIDTH)))
def binary_cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(x, y)


# Images -------------------------------------------------------------------------------------------


@pattern(image)
def batch_norm_relu(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, scale, shift, training=True).relu()


@pattern(image_channels_last)
def batch_norm_relu_channels_last(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, scale, shift, training=True).relu()


@pattern(image)
def group_norm_silu(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.silu(functional.group_norm(x, 32, scale, shift))


@pattern(image)
def layer_norm_of_channels(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.layer_norm(x.permute(0, 2, 3, 1), (128,), scale, shift).permute(0, 3, 1, 2)


# Memory -------------------------------------------------------------------------------------------


@pattern(words)
def embedding_position_norm(
    numbers: Tensor, table: Tensor, places: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    hidden = functional.embedding(numbers, table) + places
    return functional.layer_norm(hidden, (WIDTH,), scale, shift)


@pattern(matrix)
def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


@pattern(lambda rows: (torch.randn(rows, WIDTH), torch.randn(WIDTH, rows)))
def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    return x + y.t()


# Reductions and scans -----------------------------------------------------------------------------


@pattern(matrix)
def column_sums(x: Tensor) -> Tensor:
    return (x * x).sum(0)


@pattern(matrix, has_gradient=False)
def argmax(x: Tensor) -> Tensor:
    return x.argmax(-1)


@pattern(two_matrices)
def cumulative_sum(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).cumsum(-1) * 0.5


# Dropout ------------------------------------------------------------------------------------------


@pattern(two_matrices_and_affine, is_drawn=True)
def dropout_residual_layer_norm(
    x: Tensor, residual: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    return functional.layer_norm(functional.dropout(x, 0.1) + residual, (WIDTH,), scale, shift)


@pattern(matrix_and_scale, is_drawn=True)
def dropout_chain(x: Tensor, bias: Tensor) -> Tensor:
    hidden = functional.dropout(functional.gelu(x + bias), 0.1)
    return functional.dropout(hidden * 2, 0.2)
