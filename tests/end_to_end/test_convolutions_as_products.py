"""Convolutions whose window is one element, which are matrix products of kernels: against double
precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fusewright
from tests.relative_error import relative_error

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3),
    "with gaps": lambda x: torch.cat([x, x], 3)[..., ::2],
    "part of the channels": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "one image for all": lambda x: x[:1].expand_as(x),
}


def library_calls(compiled: Any) -> tuple[str, ...]:
    record = fusewright.compilations(compiled)[-1].record
    assert record is not None
    return tuple(record.extern_calls)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 1, 1), (2, 7, 1, 1), (3, 17, 7, 7), (2, 33, 9, 20)])
def test_layouts(layout: str, has_bias: bool, size: tuple[int, ...]) -> None:
    x = LAYOUTS[layout](torch.randn(size))
    weight, bias = torch.randn(19, size[1], 1, 1), torch.randn(19) if has_bias else None

    def layer(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.relu(F.conv2d(x, weight, bias)) + 1

    compiled = fusewright.compile(layer, options={"strict": True}, dynamic=False)
    result, eager = compiled(x, weight, bias), layer(x, weight, bias)
    exact = layer(x.double(), weight.double(), None if bias is None else bias.double())
    assert result.stride() == eager.stride()
    assert relative_error(result, exact) <= 1e-6
    if layout in ("contiguous", "channels last", "part of the channels"):
        assert not library_calls(compiled)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions(dimensions: int) -> None:
    convolve = {1: F.conv1d, 3: F.conv3d}[dimensions]
    x = torch.randn(2, 5, *(4, 3, 6)[:dimensions])
    weight = torch.randn(3, 5, *(1, 1, 1)[:dimensions])
    compiled = fusewright.compile(lambda x, weight: convolve(x, weight), options={"strict": True})
    assert relative_error(compiled(x, weight), convolve(x.double(), weight.double())) <= 1e-6
    assert not library_calls(compiled)


@pytest.mark.parametrize(
    "settings",
    [{"stride": 2}, {"padding": 1}, {"groups": 2}, {"stride": (1, 2), "padding": (0, 1)}],
    ids=str,
)
def test_others_are_the_librarys(settings: dict[str, Any]) -> None:
    x, weight = torch.randn(2, 6, 5, 5), torch.randn(4, 6 // settings.get("groups", 1), 1, 1)
    compiled = fusewright.compile(lambda x, weight: F.conv2d(x, weight, **settings))
    torch.testing.assert_close(compiled(x, weight), F.conv2d(x, weight, **settings))
    assert library_calls(compiled)


def test_sizes_that_vary() -> None:
    layer = nn.Conv2d(6, 5, 1)
    compiled = fusewright.compile(layer, dynamic=True)
    with torch.no_grad():
        for batch, height, width in [(2, 3, 4), (3, 7, 5), (5, 9, 2), (2, 30, 31)]:
            x = torch.randn(batch, 6, height, width)
            torch.testing.assert_close(compiled(x), layer(x))


def test_training() -> None:
    network = nn.Sequential(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = torch.randn(3, 6, 5, 7)
    exact = [*network.double().parameters()]
    expected = torch.autograd.grad(network(x.double()).square().sum(), exact)
    network.float()
    compiled = fusewright.compile(network, options={"strict": True})
    results = torch.autograd.grad(compiled(x).square().sum(), [*network.parameters()])
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), reference, rtol=1e-4, atol=1e-4)
