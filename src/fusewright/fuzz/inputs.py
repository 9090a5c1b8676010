"""The tensors that random programs begin with: values of a kind, in a layout, told by a seed.

A judge runs the same program in double precision: inside `lifted`, what these functions return has
the values that it has otherwise, as float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy
import torch
from torch import nn

KINDS: Final = ("normal", "integers", "positive", "special", "constant")
"""Values: of a normal distribution, small integers, above 0.1, NaN and infinity and the like among
others, all the same.
"""

LAYOUTS: Final = ("contiguous", "transposed", "expanded", "sliced", "offset", "reversed")
"""Where elements stand in memory: in order; the last two dimensions swapped; the first dimension
with stride 0; every second of each row; behind three others; all dimensions in reverse order.
"""

LOW: Final = (torch.float32, torch.float16, torch.bfloat16)


class _Run:
    """The run in progress: lifted to double precision or not, where its tensors are, and the leaves
    it made.
    """

    lift = False
    device = "cpu"
    noise = 0.0
    leaves: list[torch.Tensor] = []  # noqa: RUF012  replaced for each run


@contextmanager
def collected_leaves(lift: bool = False, device: str = "cpu") -> Iterator[list[torch.Tensor]]:
    """The tensors of which gradients will be asked, as they are made inside, on a device."""
    before = _Run.lift, _Run.device, _Run.leaves
    _Run.lift, _Run.device, _Run.leaves = lift, device, []
    try:
        yield _Run.leaves
    finally:
        _Run.lift, _Run.device, _Run.leaves = before


@contextmanager
def noisy_inputs(size: float) -> Iterator[None]:
    """Inside, inputs that are no integers are changed by up to `size`, relatively."""
    before, _Run.noise = _Run.noise, size
    try:
        yield
    finally:
        _Run.noise = before


def fill(
    seed: int,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    kind: str = "normal",
    layout: str = "contiguous",
    grad: bool = False,
) -> torch.Tensor:
    """A tensor of random values: one of `KINDS`, in one of `LAYOUTS`; `grad`: a leaf whose gradient
    is compared.
    """
    shape = tuple(shape)
    generator = numpy.random.RandomState(seed % 2**31)
    values = _values(generator, math.prod(shape), dtype, kind).reshape(shape)
    if _Run.lift:
        values = lifted(values)
    if _Run.noise and values.dtype == torch.float64 and kind in ("normal", "positive", "constant"):
        values = values * (1 + _Run.noise * (2 * torch.rand(values.shape) - 1))
    tensor = _laid_out(values.to(_Run.device), layout)
    return leaf(tensor.detach()) if grad else tensor


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, of which a gradient is asked and compared."""
    _Run.leaves.append(tensor.requires_grad_())
    return tensor


def weights(module: nn.Module, seed: int) -> nn.Module:
    """A module whose parameters are values told by a seed, small enough for training steps."""
    generator = numpy.random.RandomState(seed % 2**31)
    with torch.no_grad():
        for parameter in module.parameters():
            values = generator.randn(*parameter.shape) * 0.4
            parameter.copy_(torch.from_numpy(numpy.asarray(values)).to(parameter.dtype))
    return module.to(_Run.device, torch.float64 if _Run.lift else None)


def lifted(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in double precision, where its dtype is a shorter one of floats."""
    if tensor.dtype in LOW:
        return tensor.double()
    return tensor.to(torch.complex128) if tensor.dtype == torch.complex64 else tensor


def _values(
    generator: numpy.random.RandomState, count: int, dtype: torch.dtype, kind: str
) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.from_numpy(generator.randint(0, 2, count).astype(bool))
    if dtype.is_complex:
        parts = _values(generator, 2 * count, torch.float64, kind)
        return torch.complex(parts[:count], parts[count:]).to(dtype)
    if not dtype.is_floating_point:
        return _integers(generator, count, dtype, kind)
    if kind == "integers":
        numbers = generator.randint(-3, 4, count).astype(numpy.float64)
    elif kind == "constant":
        numbers = numpy.full(count, generator.randn())
    elif kind == "positive":
        numbers = numpy.abs(generator.randn(count)) + 0.1
    else:
        numbers = generator.randn(count) * 1.5
    if kind == "special":
        facts = torch.finfo(dtype)
        pool = [math.nan, math.inf, -math.inf, -0.0, 0.0, facts.tiny / 4, facts.tiny, facts.max]
        pool += [-facts.max, 1.0, -1.0]
        chosen = numpy.asarray(pool)[generator.randint(0, len(pool), count)]
        numbers = numpy.where(generator.rand(count) < 0.35, chosen, numbers)
    return torch.from_numpy(numbers).to(dtype)


def _integers(
    generator: numpy.random.RandomState, count: int, dtype: torch.dtype, kind: str
) -> torch.Tensor:
    facts = torch.iinfo(dtype)
    positive = kind == "positive" or facts.min == 0
    numbers = generator.randint(1 if kind == "positive" else 0 if positive else -8, 10, count)
    if kind == "special":
        pool = numpy.asarray([facts.max, facts.min, facts.max - 1, 0])
        chosen = pool[generator.randint(0, 4, count)]
        numbers = numpy.where(generator.rand(count) < 0.3, chosen, numbers)
    if kind == "constant" and count:
        numbers[:] = numbers[0]
    return torch.from_numpy(numbers.astype(numpy.int64)).to(dtype)


def _laid_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The values in memory of another form. A shape that a layout does not fit is contiguous."""
    shape = values.shape
    if layout == "offset":
        return values.new_zeros(values.numel() + 3)[3:].view(shape).copy_(values)
    if not shape:
        return values
    if layout == "sliced":
        return values.new_zeros(*shape[:-1], 2 * shape[-1])[..., ::2].copy_(values)
    if layout == "expanded":
        return values[:1].clone().expand(shape) if shape[0] else values
    if layout == "transposed" and len(shape) > 1:
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "reversed":
        backwards = tuple(reversed(range(len(shape))))
        return values.permute(backwards).contiguous().permute(backwards)
    return values
