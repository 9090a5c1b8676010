"""Resampling as loops and as compiled kernels, beside eager and float64: results and gradients in
every mode, layout and type, as on a CPU and as on a GPU, and what is left to the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fusewright
from fusewright.lower import resampling
from tests.lower.support import check, lowered
from tests.relative_error import relative_error

Function = Callable[[torch.Tensor], torch.Tensor]


def resampled(mode: str, **options: Any) -> Function:
    return lambda x: F.interpolate(x, mode=mode, **options)


SPATIAL = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
WAYS: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2},
    "three times": {"scale_factor": 3},
    "a factor": {"scale_factor": 1.7},
    "smaller": {"scale_factor": 0.4},
    "a size": {"size": 9},
    "the same size": {"size": 6},
    "one": {"size": 1},
}
WEIGHING = {
    f"{mode} {way}{', corners' * aligned}": (count, resampled(mode, align_corners=aligned, **to))
    for mode, count in SPATIAL.items()
    for way, to in WAYS.items()
    for aligned in (False, True)
}
NEAREST = {
    f"{mode} {way} {count}": (count, resampled(mode, **to))
    for mode in ("nearest", "nearest-exact")
    for way, to in WAYS.items()
    for count in (1, 2, 3)
}
CASES = {**WEIGHING, **NEAREST}
SAMPLE = [*CASES][::5]
"""Cases of every mode and way, for tests that generate machine code."""


def data(count: int, dtype: torch.dtype = torch.float32, *, last: bool = False) -> torch.Tensor:
    """Images, rows or volumes, of another length along each dimension."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, *(6, 7, 4)[:count], generator=generator).to(dtype)
    if not last or count == 1:
        return x
    layout = torch.channels_last if count == 2 else torch.channels_last_3d
    return x.to(memory_format=layout)


def gradients(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A result, and the gradient of a weighted sum of it."""
    x = x.detach().requires_grad_()
    result = function(x)
    weights = torch.arange(result.numel(), dtype=torch.float64).view(result.shape).sin()
    (result * weights.to(result.dtype)).sum().backward()
    assert x.grad is not None
    return result.detach(), x.grad


def assert_as_near_as_eager(
    compiled: Function, function: Function, x: torch.Tensor, least: float
) -> None:
    """Results and gradients are no farther from float64's than 1.5 times eager's, or `least`."""
    exact = gradients(function, x.double())
    for ours, eager, wide in zip(
        gradients(compiled, x), gradients(function, x), exact, strict=True
    ):
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        error, bound = relative_error(ours, wide), relative_error(eager, wide)
        assert error <= max(1.5 * bound, least)


@pytest.mark.parametrize("name", CASES)
def test_loops_are_as_eager(name: str) -> None:
    count, function = CASES[name]
    result = check(function, data(count))
    assert not result.externs
    check(function, data(count, last=True))


@pytest.mark.parametrize("name", SAMPLE)
def test_kernels_and_their_gradients_are_as_near_as_eager(name: str) -> None:
    count, function = CASES[name]
    compiled = fusewright.compile(function, options={"strict": True})
    for last in (False, True):
        assert_as_near_as_eager(compiled, function, data(count, last=last), 2e-7)
    assert_as_near_as_eager(compiled, function, data(count, torch.bfloat16), 2e-3)


@pytest.mark.parametrize("name", SAMPLE[::3])
def test_kernels_as_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sum over all dimensions, without tables."""
    monkeypatch.setattr(resampling, "runs_on_cpu", lambda call: False)
    count, function = CASES[name]
    compiled = fusewright.compile(lambda x: function(x), options={"strict": True})
    assert_as_near_as_eager(compiled, function, data(count, last=True), 2e-7)


@pytest.mark.parametrize("name", [*WEIGHING][::5])
def test_what_is_infinite_spreads_as_far_as_in_eager(name: str) -> None:
    count, function = CASES[name]
    x = data(count)
    x.view(-1)[::7], x.view(-1)[3::11] = math.inf, math.nan
    compiled = fusewright.compile(function, options={"strict": True})
    torch.testing.assert_close(compiled(x), function(x), equal_nan=True)


NUMBERS: dict[str, tuple[int, dict[str, Any]]] = {
    "41 times, where eager misses some": (1, {"scale_factor": 41}),
    "61 times": (2, {"scale_factor": 61}),
    "a factor that rounds to twice": (1, {"scale_factor": 2.2}),
    "images by that": (2, {"scale_factor": 2.2}),
    "a factor that rounds to once": (3, {"scale_factor": 1.2}),
    "integers": (2, {"scale_factor": 1.7}),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_element_is_that_of_eager(name: str, mode: str) -> None:
    count, options = NUMBERS[name]
    function = resampled(mode, **options)
    x = torch.arange(3 * 3**count).view(1, 3, *[3] * count)
    x = x.to(torch.uint8 if name == "integers" else torch.float32)
    layouts = [x, x.mT.contiguous().mT]
    if count > 1:
        layouts.append(
            x.to(memory_format=torch.channels_last if count == 2 else torch.channels_last_3d)
        )
    for image in layouts:
        compiled = fusewright.compile(function, options={"strict": True})
        torch.testing.assert_close(compiled(image), function(image), rtol=0, atol=0)
        if x.is_floating_point():
            ours, eager = gradients(compiled, image)[1], gradients(function, image)[1]
            torch.testing.assert_close(ours, eager)


def gradient_of_negative_zeros(function: Function, x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    result = function(leaf)
    (gradient,) = torch.autograd.grad(result, leaf, -torch.zeros_like(result))
    return gradient


SIGNS = [name for name in CASES if "twice" in name or "same size" in name or "smaller" in name]


@pytest.mark.parametrize("name", [name for name in SIGNS if "corners" not in name])
def test_gradients_of_negative_zeros_have_the_signs_of_eager(name: str) -> None:
    """Eager adds to zeros what it does not copy: -0.0 alone makes 0.0."""
    count, function = CASES[name]
    compiled = fusewright.compile(lambda x: function(x), options={"strict": True})
    ours, eager = (gradient_of_negative_zeros(f, data(count)) for f in (compiled, function))
    assert torch.equal(ours.signbit(), eager.signbit())


@pytest.mark.parametrize("mode, copied", [("linear", True), ("nearest", False)])
def test_gradients_of_the_same_size_are_copied_as_on_a_gpu(
    mode: str, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There eager copies where on a CPU it adds to zeros, as the kernels of one dimension show."""
    monkeypatch.setattr(resampling, "runs_on_cpu", lambda call: False)
    compiled = fusewright.compile(resampled(mode, size=6), options={"strict": True})
    assert gradient_of_negative_zeros(compiled, data(1)).signbit().eq(copied).all()


def test_an_infinite_gradient_of_the_same_size_stays_where_it_is() -> None:
    function = resampled("bicubic", size=3)
    gradient = torch.zeros(1, 1, 3, 3)
    gradient[0, 0, 1, 1] = math.inf
    for f in (function, fusewright.compile(function, options={"strict": True})):
        x = torch.zeros(1, 1, 3, 3, requires_grad=True)
        assert torch.equal(*torch.autograd.grad(f(x), x, gradient), gradient)


def test_one_compile_does_for_any_size() -> None:
    function = resampled("bilinear", scale_factor=2)
    compiled = fusewright.compile(function, dynamic=True, options={"strict": True})
    for height, width in ((3, 4), (5, 5), (1, 9), (16, 2)):
        x = torch.randn(2, 3, height, width)
        torch.testing.assert_close(compiled(x), function(x))


def test_gradients_of_many_results_are_the_librarys() -> None:
    function = resampled("bilinear", scale_factor=16)
    compiled = fusewright.compile(function, options={"strict": True})
    assert_as_near_as_eager(compiled, function, data(2), 2e-7)


def test_smoothed_resampling_is_the_librarys() -> None:
    smoothed = resampled("bilinear", size=3, antialias=True)
    assert lowered(smoothed, data(2)).externs
