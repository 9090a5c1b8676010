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


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 1, "padding": 1},
        {"kernel_size": (2, 5), "stride": (3, 4), "padding": (1, 2)},
        {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": (4, 3), "stride": (1, 3), "padding": (2, 0), "ceil_mode": True},
    ],
)
def test_gradients_of_the_largest_are_as_eager(
    options: dict[str, Any], dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Also where elements tie, are NaN or as small as can be, and gradients are no numbers. Those
    of half types are whole: eager rounds each sum, kernels the last one.
    """
    compiled = fusewright.compile(largest(**options), options={"strict": True})
    for height, width in ((9, 37), (12, 64)):
        values = images(height, width, dtype).to(memory_format=layout)
        result = largest(**options)(values)
        incoming = torch.randn(result.shape, generator=torch.Generator().manual_seed(2)) * 4
        incoming = incoming if dtype is torch.float32 else incoming.round().to(dtype)
        incoming.view(-1)[::11], incoming.view(-1)[5::13] = math.inf, math.nan
        gradients = []
        for function in (compiled, largest(**options)):
            x = values.clone(memory_format=torch.preserve_format).requires_grad_()
            function(x).backward(incoming)
            gradients.append(x.grad)
        exact = {"rtol": 0, "atol": 0, "equal_nan": True, "check_stride": True}
        torch.testing.assert_close(*gradients, **exact)


def test_gradients_of_sizes_that_vary() -> None:
    compiled = fusewright.compile(largest(3, 2, 1), dynamic=True, options={"strict": True})
    for size in ((9, 37), (12, 40), (33, 8)):
        gradients = []
        for function in (compiled, largest(3, 2, 1)):
            x = images(*size).requires_grad_()
            function(x).square().sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("dilation", "externs"), [(1, 0), (2, 1)])
def test_gradients_of_the_largest_are_gathered(dilation: int, externs: int) -> None:
    """The windows that an element is in are counted where their elements lie side by side."""
    options = ([3, 3], [2, 2], [1, 1], [dilation, dilation], False)
    x = images()
    result, indices = torch.ops.aten.max_pool2d_with_indices(x, *options)
    function = torch.ops.aten.max_pool2d_with_indices_backward.default
    gradient = check(function, torch.ones_like(result), x, *options, indices, externs=None)
    assert len(gradient.externs) == externs


def test_what_is_pooled_is_computed_once() -> None:
    result = lowered(lambda x: F.max_pool2d(x.exp(), 3, 1, 1), torch.randn(1, 2, 8, 8))
    assert result.computed == 2


def test_large_windows_and_integers_stay_with_the_library() -> None:
    assert lowered(largest(7), torch.randn(1, 1, 28, 28)).externs
    assert lowered(largest(2), torch.randint(0, 9, (1, 1, 4, 4))).externs


def tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)
