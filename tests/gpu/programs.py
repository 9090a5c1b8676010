"""Small programs of every kind that becomes kernels, with inputs on a device: run on a GPU by
`test_programs`, and on the CPU under Triton's interpreter by `test_interpreted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True, slots=True)
class Program:
    """A function, and what makes its arguments on a device."""

    function: Callable[..., Any]
    inputs: Callable[[torch.device], tuple[Any, ...]]
    long: bool = False
    """Whether its tensors are too large to be interpreted."""


def program(
    inputs: Callable[[torch.device], tuple[Any, ...]], *, long: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function to the programs, under its own name."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = Program(function, inputs, long)
        return function

    return add


def numbers(
    *sizes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Callable[[torch.device], tuple[torch.Tensor, ...]]:
    """Normal numbers of these sizes, the same on each device."""

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(7)
        return tuple(
            torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype)
            for size in sizes
        )

    return make


def integers(
    *sizes: tuple[int, ...], low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64
) -> Callable[[torch.device], tuple[torch.Tensor, ...]]:
    """Integers of these sizes, the same on each device."""

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(7)
        return tuple(
            torch.randint(low, high, size, generator=generator).to(device, dtype) for size in sizes
        )

    return make


def both(
    *parts: Callable[[torch.device], tuple[Any, ...]],
) -> Callable[[torch.device], tuple[Any, ...]]:
    """Arguments of several kinds, in order."""
    return lambda device: tuple(value for part in parts for value in part(device))


# Elementwise --------------------------------------------------------------------------------------


def numbers_of_the_cpu(device: torch.device) -> tuple[torch.Tensor, ...]:
    """A tensor on the device, and single numbers on the CPU."""
    (x,) = numbers((40, 50))(device)
    rate = torch.tensor(0.3, dtype=torch.float64)
    return (x, rate, torch.tensor(-1.5), torch.tensor(3), torch.tensor(0.25, dtype=torch.bfloat16))


@program(numbers_of_the_cpu)
def numbers_beside_tensors(x: Any, rate: Any, shift: Any, count: Any, half: Any) -> Any:
    scale = rate**count + 1
    return torch.where(x > shift, x * scale, half) + count, (x * rate).sum(1) / scale


@program(integers((5,)))
def integer_steps_beyond_32_bits(x: Any) -> Any:
    return x + torch.arange(0, 5 << 30, 1 << 30, device=x.device)


@program(numbers((16, 16), (5, 13), (3, 2000), (7, 2)))
def sums_of_zeros_below_zero(*rows: Any) -> Any:
    """None is: sums begin at 0, however many lanes of a block a row fills."""
    zeros = [x.abs() * -0.0 for x in rows]
    sums = [y for x in zeros for y in (x.sum(1), x.mean(1), x.sum(), torch.var_mean(x, 1)[1])]
    return [torch.where(y.signbit(), y - 1, y) for y in sums]


@program(numbers((33, 70), (70,)))
def broadcast_sum_and_activation(x: Any, bias: Any) -> Any:
    return functional.gelu(x + bias) * torch.sigmoid(x)


@program(numbers((33, 70), dtype=torch.float64))
def double_precision(x: Any) -> Any:
    return x.sin().exp().log1p() / (x.abs() + 1).sqrt()


@program(numbers((33, 70), (33, 70), dtype=torch.bfloat16))
def bfloat16_chain(x: Any, y: Any) -> Any:
    return functional.silu(x) * y + 1


@program(numbers((33, 70), (33, 70), dtype=torch.float16))
def float16_chain(x: Any, y: Any) -> Any:
    return torch.where(x > y, x * 2, y.tanh())


@program(integers((5, 40), (5, 40)))
def integer_arithmetic(x: Any, y: Any) -> Any:
    return (x * 3 - y) // 4, x % 5, (x & y) | 2, x < y


@program(integers((100,), low=0, high=200, dtype=torch.uint8))
def bytes_wrap_around(x: Any) -> Any:
    return x + x, x.to(torch.float32) / 3, (x.clamp(min=150) + 120).sum()


@program(numbers((4, 300)))
def several_results(x: Any) -> Any:
    return x + 1, x.exp(), (x > 0).to(torch.int64)


@program(numbers((70, 33), (33, 70)))
def one_operand_transposed(x: Any, y: Any) -> Any:
    return x.t() + y


@program(numbers((3, 5, 7, 9)))
def permuted_copy(x: Any) -> Any:
    return (x.permute(3, 1, 0, 2) * 2).contiguous()


@program(lambda device: (torch.arange(900.0, device=device).view(30, 30)[3:20:2, 1:29:3],))
def strided_input(x: Any) -> Any:
    return x.cos() + x.sum(0)


@program(lambda device: (torch.ones(0, 5, device=device), torch.ones(5, device=device)))
def nothing_to_do(x: Any, y: Any) -> Any:
    return x + y, (x * y).sum(0), y * 2


@program(lambda device: (torch.arange(12.0, device=device), torch.tensor(2.5)))
def number_from_the_cpu(x: Any, number: Any) -> Any:
    return x * number + 1


@program(lambda device: (torch.tensor(3.0, device=device), torch.tensor(4.0, device=device)))
def single_numbers(x: Any, y: Any) -> Any:
    return torch.atan2(x, y) + x.pow(y)


@program(numbers((7, 64)))
def cat_and_slices(x: Any) -> Any:
    return torch.cat([x[:, :20].exp(), x[:, 30:40], -x], 1)


@program(numbers((2, 3, 8, 8)))
def padding_and_flips(x: Any) -> Any:
    padded = functional.pad(x, (1, 2, 3, 0), mode="reflect")
    return padded.flip(-1) + functional.pad(padded, (0, 0), value=1.0).tril()


# Reductions ---------------------------------------------------------------------------------------


@program(numbers((40, 100)))
def row_sums(x: Any) -> Any:
    return x.sum(1), x.exp().mean(1, keepdim=True) - x.amax(1, keepdim=True)


@program(numbers((100, 40)))
def column_sums(x: Any) -> Any:
    return x.sum(0), (x * x).amax(0)


@program(numbers((3, 5000)))
def long_rows(x: Any) -> Any:
    return x.softmax(1), x.sum(1)


@program(numbers((1, 40000)))
def one_long_sum(x: Any) -> Any:
    return x.sum(), x.max(), (x > 0).any()


@program(numbers((2048, 1500)), long=True)
def large_column_sums(x: Any) -> Any:
    return x.sum(0), x.exp().sum(0)


@program(numbers((16, 50257)), long=True)
def softmax_over_a_vocabulary(x: Any) -> Any:
    return x.log_softmax(-1)


@program(numbers((6, 10, 96), (96,), (96,)))
def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return functional.layer_norm(x + 1, (96,), weight, bias) + x


@program(numbers((2, 8, 5, 5), (8,), (8,)))
def group_norm_and_silu(x: Any, weight: Any, bias: Any) -> Any:
    return functional.silu(functional.group_norm(x, 4, weight, bias))


@program(numbers((4, 6, 5, 5), (6,), (6,)))
def batch_norm_that_trains(x: Any, weight: Any, bias: Any) -> Any:
    return functional.relu(functional.batch_norm(x, None, None, weight, bias, training=True))


@program(numbers((2, 2, 128, 128), (2,), (2,)))
def batch_norm_of_many_pixels(x: Any, weight: Any, bias: Any) -> Any:
    shifted = x * 0.5 + 20
    return functional.relu(functional.batch_norm(shifted, None, None, weight, bias, training=True))


@program(numbers((2, 64, 64, 8), (8,), (8,), dtype=torch.bfloat16))
def batch_norm_of_many_pixels_by_channels(x: Any, weight: Any, bias: Any) -> Any:
    images = x.permute(0, 3, 1, 2)
    return functional.batch_norm(images, None, None, weight, bias, training=True)


@program(numbers((2, 5000), (5000,), (5000,)))
def layer_norm_of_long_rows(x: Any, weight: Any, bias: Any) -> Any:
    return functional.layer_norm(x, (5000,), weight, bias)


@program(numbers((5, 96), (96,), dtype=torch.bfloat16))
def rms_norm(x: Any, weight: Any) -> Any:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


@program(numbers((5, 9)))
def rms_norm_of_torch(x: Any) -> Any:
    return functional.rms_norm(x, x.shape[-1:])


@program(numbers((4, 9, 30)))
def positions_of_extremes(x: Any) -> Any:
    return x.argmax(-1), x.argmin(1), x.max(-1).indices, x.flatten().argmax()


@program(numbers((4, 90)))
def spread(x: Any) -> Any:
    return x.var(1), x.std(), torch.var_mean(x, 0)


@program(integers((4, 90), low=-3, high=4))
def integer_reductions(x: Any) -> Any:
    return x.sum(1), x.prod(1), x.amin(0), (x > 0).all(0)


@program(numbers((3, 12, 12)))
def masked_softmax(x: Any) -> Any:
    mask = torch.ones(12, 12, dtype=torch.bool, device=x.device).tril()
    return x.masked_fill(~mask, float("-inf")).softmax(-1)


# Indices ------------------------------------------------------------------------------------------


@program(both(numbers((11, 20)), integers((4, 5), low=0, high=11)))
def embedding(weight: Any, tokens: Any) -> Any:
    return functional.embedding(tokens, weight) * 2


@program(both(numbers((6, 11)), integers((6, 4), low=0, high=11)))
def gathered(x: Any, places: Any) -> Any:
    return x.exp().gather(1, places), x[:, places[0]]


@program(both(numbers((10, 6), (4, 6)), integers((4,), low=0, high=10)))
def added_at_indices(x: Any, values: Any, places: Any) -> Any:
    return x.index_add(0, places, values), x.index_put((places,), values, accumulate=True)


@program(both(numbers((8, 20)), integers((8,), low=0, high=20)))
def cross_entropy(scores: Any, classes: Any) -> Any:
    return functional.cross_entropy(scores * 3, classes)


# Library calls between kernels --------------------------------------------------------------------


@program(numbers((8, 16), (16, 32), (32,), (32, 4)))
def perceptron(x: Any, first: Any, bias: Any, second: Any) -> Any:
    return functional.gelu(x @ first + bias) @ second + 1


@program(numbers((2, 3, 9, 9), (4, 3, 3, 3), (4,)))
def convolution(x: Any, weight: Any, bias: Any) -> Any:
    return functional.max_pool2d(functional.relu(functional.conv2d(x, weight, bias)), 2)


@program(
    numbers((2, 3, 17, 17), (8, 3, 3, 3), (8,), (8, 8, 3, 3), (8, 8, 1, 1), dtype=torch.bfloat16)
)
def residual_convolutions_of_half_type(
    x: Any, first: Any, bias: Any, second: Any, third: Any
) -> Any:
    x = functional.max_pool2d(functional.relu(functional.conv2d(x / 4, first, bias)), 3, 2, 1)
    y = functional.relu(functional.conv2d(x, second / 8, padding=1))
    return functional.conv2d(y, third / 4) + x, y.mean((2, 3))


@program(numbers((2, 3, 9, 9), (4, 3, 3, 3), (4, 1, 3, 3)))
def convolutions_of_either_layout(x: Any, weight: Any, channelwise: Any) -> Any:
    """Their gradients are laid out like arguments, not like the gradients that arrive."""
    result = functional.conv2d(x, weight).permute(0, 2, 3, 1) * 2
    last = functional.conv2d(result.permute(0, 3, 1, 2), channelwise, groups=4)
    return result, last.contiguous() * 3


@program(numbers((2, 4, 16, 8), (2, 4, 16, 8), (2, 4, 16, 8)))
def attention(query: Any, key: Any, value: Any) -> Any:
    return functional.scaled_dot_product_attention(query * 2, key, value, is_causal=True) + 1


@program(numbers((5, 30)))
def sorted_and_scanned(x: Any) -> Any:
    return (x + 1).sort(-1).values * 2, x.exp().cumsum(-1), x.topk(3).values


@program(numbers((6, 5)))
def padded_concatenation(x: Any) -> Any:
    """A load below two masks."""
    return functional.pad(torch.cat([x, x]), (0, 1, 3, 1))


def smallest(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Pairs of numbers about the smallest that there are."""
    values = torch.tensor([0.0, 1e-45, -1e-45, 1e-40, 2e-38, -2e-38, 0.5, -0.5, 2.5, -1.0])
    return values[:, None].expand(10, 10).to(device), values.to(device)


@program(smallest)
def numbers_from_the_smallest(x: Any, y: Any) -> Any:
    """None counts as 0."""
    steps = torch.nextafter(x, y)
    whole = x.ceil(), x.floor(), x.trunc(), steps > x, steps < x, torch.remainder(x, -1), x / x
    return *whole, x.tanh(), x.sin(), x.expm1(), x.asinh(), x.rsqrt(), x.abs() ** 0.1, x.sinh() / x


@program(numbers((5, 4, 3), (7, 6)))
def layouts_of_their_own(x: Any, y: Any) -> Any:
    """Results are laid out like arguments, where the CPU's are row-major."""
    return functional.logsigmoid(x.permute(2, 0, 1)), functional.logsigmoid(y.t())


@program(
    both(
        numbers((40, 12), (40, 12), dtype=torch.bfloat16),
        integers((40,), low=0, high=12),
    )
)
def losses_of_half_type(x: Any, y: Any, classes: Any) -> Any:
    weight = y[0].detach().exp()  # has no gradient in torch 2.11
    return (
        functional.cross_entropy(x, classes, ignore_index=3),
        functional.mse_loss(x, y),
        functional.huber_loss(x, y),
        functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        functional.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=weight),
    )


@program(numbers((64, 40, 130), (64, 40), (130,), dtype=torch.float64))
def sums_of_columns_beside_rows(x: Any, mean: Any, weight: Any) -> Any:
    """Rows of normalised numbers, weighted, and two sums over all rows."""
    normal = (x - mean.unsqueeze(-1)) * 0.5
    return (normal * weight).sum((0, 1)), normal.sum((0, 1)), normal * weight


@program(numbers((9, 40)))
def sorted_rows(x: Any) -> Any:
    """What is picked of rows whose elements all differ, and where it was."""
    return (*torch.topk(x, 3), *torch.sort(x, 0), *torch.kthvalue(x, 7), *torch.nanmedian(x, 0))


@program(numbers((1, 1, 96), (40, 96), (40, 96), (40,), dtype=torch.bfloat16))
def gated_row(x: Any, w: Any, v: Any, bias: Any) -> Any:
    """Products of one row are sums."""
    return functional.silu(functional.linear(x, w, bias)) * functional.linear(x, v)


@program(numbers((512, 1024), (1025, 1024), dtype=torch.bfloat16), long=True)
def uneven_logits(x: Any, w: Any) -> Any:
    """Rows of the result, and of its gradient, begin at no aligned addresses."""
    logits = functional.linear(x * 0.1, w)
    return logits, (logits.float() * torch.arange(1025, device=x.device).cos()).mean()


def places_of_many_rows(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Places below 70 of 2,500 rows, nine of ten the same, and of two dimensions."""
    generator = torch.Generator().manual_seed(7)
    places = torch.randint(0, 70, (50, 50), generator=generator)
    mostly = torch.where(torch.rand((50, 50), generator=generator) < 0.9, 37, places)
    return places.to(device), mostly.to(device, torch.int32)


@program(both(numbers((70, 40), (2500, 40)), places_of_many_rows), long=True)
def many_rows_added(weight: Any, rows: Any, places: Any, mostly: Any) -> Any:
    """Rows that their gradient adds to a table in the order of the table's, and rows put there."""
    return (
        functional.embedding(places, weight) * rows.view(50, 50, 40),
        functional.embedding(mostly, weight, padding_idx=3).sin(),
        functional.embedding(places % 5, weight[:5]).cos(),
        weight.index_put((mostly.view(-1).long() - 70,), rows, accumulate=True),
        weight.index_put((places, places % 40), rows[:, 0].view(50, 50), accumulate=True),
    )


@program(both(numbers((70, 40), dtype=torch.bfloat16), places_of_many_rows), long=True)
def many_half_rows_added(weight: Any, places: Any, mostly: Any) -> Any:
    """The same of a half type, of a table that is a matrix, too; so small that what eager rounds
    between two sums is less than is allowed.
    """
    found = functional.embedding(mostly, weight)
    return functional.linear(found.tanh(), weight) / 8, functional.embedding(places, weight) / 8


@program(both(numbers((10000, 72), (140, 600)), places_of_many_rows), long=True)
def many_rows_of_large_tables(table: Any, wide: Any, places: Any, mostly: Any) -> Any:
    """Most rows of the first table get nothing; those of the other are no power of two."""
    return (
        functional.embedding(places * 140, table).sin(),
        functional.embedding(mostly.long() * 142 + places, table).cos(),
        functional.embedding(places + mostly, wide).tanh(),
    )


DIFFERENTIABLE = [
    name
    for name in PROGRAMS
    if not name.startswith(("integer", "bytes", "positions", "nothing", "number"))
]
"""Programs with results that have a gradient."""
