"""Pooling over small windows, as loops and as compiled kernels, beside eager: values, places, and
what is left to the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fusewright
from tests.lower.support import check, lowered

Function = Callable[..., Any]


def images(height: int = 9, width: int = 37, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Images whose elements tie, with infinities, NaN and zeros of both signs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-4, 4, (2, 3, height, width), generator=generator).to(dtype)
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=dtype)
    places = torch.randint(0, x.numel(), (x.numel() // 8,), generator=generator)
    x.view(-1)[places] = special[torch.arange(places.numel()) % 4]
    x[1, 1] = -math.inf
    return x


def largest(*arguments: Any, **options: Any) -> Function:
    return lambda x: F.max_pool2d(x, *arguments, **options)


def with_places(*arguments: Any, **options: Any) -> Function:
    return lambda x: F.max_pool2d(x, *arguments, **options, return_indices=True)


def mean(*arguments: Any, **options: Any) -> Function:
    return lambda x: F.avg_pool2d(x, *arguments, **options)


FUNCTIONS: dict[str, Function] = {
    "largest": largest(3, 2, 1),
    "largest of neighbours": largest(3, 1, 1),
    "largest of halves": largest(2),
    "largest of few": largest((2, 5), (3, 4), (1, 2)),
    "largest of far elements": with_places(3, 2, 1, dilation=2),
    "largest of far rows": with_places((2, 3), 1, (1, 1), dilation=(3, 1)),
    "largest, rounded up": with_places(2, 2, 1, ceil_mode=True),
    "largest with places": with_places(3, 2, 1),
    "largest of rows": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "largest of one image": lambda x: F.max_pool2d(x[0], 2, return_indices=True),
    "largest of volumes": lambda x: F.max_pool3d(x, 2, 2, 1, return_indices=True),
    "mean": mean(3, 2, 1),
    "mean without padding": mean(3, 2, 1, count_include_pad=False),
    "mean, rounded up": mean(3, 2, 1, ceil_mode=True),
    "mean, rounded up, without padding": mean(2, 2, 1, ceil_mode=True, count_include_pad=False),
    "mean of a divisor": mean(2, divisor_override=3),
    "mean of neighbours": mean((3, 5), 1, (1, 2)),
    "mean of rows": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "mean of volumes": lambda x: F.avg_pool3d(x, (2, 3, 2), 2, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_are_as_eager(name: str) -> None:
    result = check(FUNCTIONS[name], images())
    assert not result.externs


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_are_as_eager(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = fusewright.compile(function, options={"strict": True})
    batches = [images(), images(5, 64), images(4, 3)]
    if "volumes" not in name:
        batches.append(images().to(memory_format=torch.channels_last))
    for x in batches:
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-6, atol=0, equal_nan=True)
        for ours, eager in zip(tensors(compiled(x)), tensors(function(x)), strict=True):
            assert ours.stride() == eager.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    x = images(dtype=dtype)
    compiled = fusewright.compile(with_places(3, 2, 1), options={"strict": True})
    torch.testing.assert_close(compiled(x), with_places(3, 2, 1)(x), rtol=0, atol=0, equal_nan=True)
    finite = x.nan_to_num(1, 2, 3)
    compiled = fusewright.compile(mean(3, 2, 1), options={"strict": True})
    torch.testing.assert_close(compiled(finite), mean(3, 2, 1)(finite))


def test_sizes_that_vary() -> None:
    def function(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)

    compiled = fusewright.compile(function, dynamic=True, options={"strict": True})
    for size in ((9, 37), (12, 40), (33, 8)):
        x = images(*size)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, layout: torch.memory_format) -> None:
    function = FUNCTIONS[name]
    values = torch.randn(2, 3, 9, 37, generator=torch.Generator().manual_seed(1))
    if "volumes" not in name:
        values = values.to(memory_format=layout)

    def gradient(call: Function) -> torch.Tensor:
        x = values.clone().requires_grad_()
        result = tensors(call(x))[0]
        result.backward(torch.arange(1.0, result.numel() + 1).view_as(result))
        assert x.grad is not None
        return x.grad

    compiled = fusewright.compile(function, options={"strict": True})
    torch.testing.assert_close(gradient(compiled), gradient(function))


def test_what_is_pooled_is_computed_once() -> None:
    result = lowered(lambda x: F.max_pool2d(x.exp(), 3, 1, 1), torch.randn(1, 2, 8, 8))
    assert result.computed == 2


def test_large_windows_and_integers_stay_with_the_library() -> None:
    assert lowered(largest(7), torch.randn(1, 1, 28, 28)).externs
    assert lowered(largest(2), torch.randint(0, 9, (1, 1, 4, 4))).externs


def tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)
