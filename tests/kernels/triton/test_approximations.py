"""Approximations of what is rounded to half types: at each number of a half type they are as near
to exact as float32 is, but for a small part of a unit; and which values are approximate. On a GPU:
`tests.gpu.test_half_types`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels.triton import interpreted  # isort: skip - it has to come before triton

import numpy as np
import torch
import triton
import triton.language as tl
from torch.nn import functional

import fusewright
from fusewright.lower.rules import words
from fusewright.runtime import triton_functions as functions
from tests.end_to_end.special_values import Case, cases, check, is_known, run
from tests.half_types import (
    FUNCTIONS,
    HALVES,
    MORE,
    exact_gelu,
    exact_gelu_slope,
    exact_tanh_gelu,
    exact_tanh_gelu_slope,
    numbers,
    places_farther_than_eager,
    tanh_gelu,
    units_off,
    value_and_slope,
)


@triton.jit
def gelu(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    tl.store(out + at, 0.5 * t * functions.approximate_twice_normal(t))


@triton.jit
def gelu_slope(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    bell = functions.approximate_bell(t) * 0.3989422804014327
    tl.store(out + at, 0.5 * functions.approximate_twice_normal(t) + t * bell)


@triton.jit
def gelu_tanh(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    inner = 0.7978845608028654 * (t + 0.044715 * (t * t * t))
    tl.store(out + at, 0.5 * t * functions.approximate_one_plus_tanh(inner))


@triton.jit
def gelu_tanh_slope(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    inner = 0.7978845608028654 * (t + 0.044715 * (t * t * t))
    slope = 0.7978845608028654 * (1.0 + 0.134145 * (t * t))
    rest = 0.5 * t * functions.approximate_one_minus_tanh_squared(inner) * slope
    tl.store(out + at, 0.5 * functions.approximate_one_plus_tanh(inner) + rest)


@triton.jit
def sigmoid(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, functions.approximate_sigmoid(tl.load(x + at)))


@triton.jit
def silu(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    tl.store(out + at, t * functions.approximate_sigmoid(t))


@triton.jit
def log_sigmoid(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    t = tl.load(x + at)
    rest = functions.approximate_log_of_one_plus_small(t)
    tl.store(out + at, functions.minimum(t, 0.0) - rest)


def slope_of(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def slope(x: torch.Tensor) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf).sum(), leaf)
        return gradient

    return slope


def usual_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + (x * 0.5**0.5).erf())


def usual_gelu_slope(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + (x * 0.5**0.5).erf()) + x * ((-0.5 * x * x).exp() / (2 * torch.pi) ** 0.5)


CASES = {
    "gelu": (gelu, exact_gelu, usual_gelu),
    "gelu_slope": (gelu_slope, exact_gelu_slope, usual_gelu_slope),
    "gelu_tanh": (gelu_tanh, exact_tanh_gelu, tanh_gelu),
    "gelu_tanh_slope": (gelu_tanh_slope, exact_tanh_gelu_slope, slope_of(tanh_gelu)),
    "sigmoid": (sigmoid, torch.sigmoid, torch.sigmoid),
    "silu": (silu, functional.silu, functional.silu),
    "log_sigmoid": (log_sigmoid, functional.logsigmoid, functional.logsigmoid),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_rounding(name: str, dtype: torch.dtype) -> None:
    kernel, function, eager = CASES[name]
    x = numbers(dtype)
    computed = torch.empty(len(x))
    with np.errstate(all="ignore"):
        kernel[(1,)](x.float(), computed, len(x))
    computed = computed.to(dtype)
    exact, usual = function(x.double()), eager(x.float()).to(dtype)
    assert torch.equal(computed.isnan(), usual.isnan())
    assert torch.equal(computed.isinf(), usual.isinf())
    off, usual_off = units_off(computed, exact, dtype), units_off(usual, exact, dtype)
    worst = int((off - usual_off).argmax())
    assert bool((off <= usual_off.clamp(min=0.5) + MORE).all()), (x[worst], off[worst])


OF_ROUNDED_RESULTS = {
    "sigmoid": lambda result: (1 - result) * result,
    "tanh": lambda result: 1 - result * result,
}
"""By name, the slope of a function of which eager saves the result, as the half type has it."""


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_are_as_near_as_eager(name: str, dtype: torch.dtype) -> None:
    """With what the forward half saves for the backward half, or both compute."""
    x = numbers(dtype)
    x = x[x.isfinite()]
    function = FUNCTIONS[name].function
    compiled = fusewright.compile(function, backend=interpreted.NAME, fullgraph=True)
    with np.errstate(all="ignore"):
        if name in OF_ROUNDED_RESULTS:
            value, slope = value_and_slope(compiled, x)
            assert torch.equal(slope, OF_ROUNDED_RESULTS[name](value.float()).to(dtype))
        far = places_farther_than_eager(name, compiled, x)
    # Eager's sigmoid of float16 on a CPU rounds in between, which is luck at some numbers.
    parts = ("value",) if name in OF_ROUNDED_RESULTS else ("value", "slope")
    assert not [place for place in far if place[0] in parts][:8]


APPROXIMATED = {
    *("x sigmoid", "exp - 1", "log(1 + exp)", "sigmoid (1 - sigmoid)", "1 - erf", "softplus beta"),
    "binary_cross_entropy_with_logits none",
    *words(
        """
        exp sigmoid erf erfc special.ndtr F.gelu F.gelu:tanh F.logsigmoid F.mish F.silu
        F.softplus F.tanhshrink log1p(exp) glu logaddexp logsumexp softmax log_softmax cross_entropy
        """
    ),
}
"""Cases of the sweep over special values whose kernels approximate."""

SPECIAL_CASES = [case for case in cases() if case.name in APPROXIMATED]


def run_interpreted(program: Callable[..., object], arguments: list[torch.Tensor]) -> object:
    compiled = fusewright.compile(program, backend=interpreted.NAME, fullgraph=True, dynamic=False)
    with np.errstate(all="ignore"):
        return run(compiled, arguments)


@pytest.mark.parametrize("case", SPECIAL_CASES, ids=lambda case: case.name)
def test_special_values_of_bfloat16(case: Case) -> None:
    """That they are eager's, but for what the sweep knows to be 0 on a GPU."""
    dtype = torch.bfloat16
    assert not is_known(case, dtype)
    assert not list(check(case, dtype, run_compiled=run_interpreted, is_approximate=True))
