"""Gradients of activations and losses become loops, and are eager's at every special value."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fusewright
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from tests.lower.support import graph_of

BENDS = [0.25, 0.5, 0.75, 1.0, 2.9999998, 3.0, 4.0]
VALUES = [-bend for bend in BENDS] + BENDS + [0.0, -0.0, 1e-40, *map(float, ("inf", "-inf", "nan"))]
WHOLE_VECTORS = 16
"""How often to repeat the values, so that eager's loops end with a whole vector: what it computes
behind the last one treats NaN otherwise.
"""

INSIDE = [0.0, 1.0, 1e-13, 0.25, 0.5, 1 - 2**-20]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "hardshrink, all": lambda x: F.hardshrink(x, -1.0),
    "softshrink": F.softshrink,
    "logit": torch.logit,
    "logit, bounded": lambda x: torch.logit(x, 0.25),
    "logit, bounds that cross": lambda x: torch.logit(x, 0.75),
    "glu": lambda x: F.glu(x, -1),
    "prelu": lambda x: F.prelu(x, x.detach()[3:4].abs()),
}
LOSSES: dict[str, Callable[..., Tensor]] = {
    "smooth l1": F.smooth_l1_loss,
    "smooth l1, narrow": functools.partial(F.smooth_l1_loss, beta=0.25),
    "huber": functools.partial(F.huber_loss, delta=0.75),
    "soft margin": F.soft_margin_loss,
}


def assert_gradients_are_loops(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The gradients of a function, compiled, are eager's, and no library call computes them."""
    own = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    module, examples = graph_of(lambda *xs: (function(*xs),), tuple(own), {})
    context = CompileContext(options=Options(verify=True, strict=True))
    compiled = compile_graph(module, examples, context)
    (result,), expected = compiled(*own), function(*inputs)
    gradient = torch.linspace(-1, 1, expected.numel(), dtype=expected.dtype).view(expected.shape)
    wanted = [x for x in inputs if x.requires_grad]
    found = torch.autograd.grad(result, [x for x in own if x.requires_grad], gradient)
    for mine, theirs in zip(found, torch.autograd.grad(expected, wanted, gradient), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, rtol=2e-6, atol=1e-7)
    assert compiled.training is not None and compiled.training.backward is not None
    assert not compiled.training.backward.record.extern_calls


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_activations(activation: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES * WHOLE_VECTORS, dtype=dtype, requires_grad=True)
    assert_gradients_are_loops(activation, x)


@pytest.mark.parametrize("activation", [F.hardswish, F.hardsigmoid, F.hardshrink, F.softshrink])
def test_activations_of_half_types(activation: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor(VALUES * WHOLE_VECTORS, dtype=torch.bfloat16, requires_grad=True)
    assert_gradients_are_loops(activation, x)


@pytest.mark.parametrize("activation", [F.silu, F.mish])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_slopes_of_half_types_are_rounded_once(
    activation: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    """At every number: where terms cancel, steps of half type leave a hundred units of rounding."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    x = x[x.isfinite()].requires_grad_()
    module, tensors = graph_of(activation, (x,), {})
    compiled = compile_graph(module, tensors, CompileContext(Options(strict=True)))
    (found,) = torch.autograd.grad(compiled(*tensors), tensors, torch.ones_like(x))
    wide = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(activation(wide), wide, torch.ones_like(wide))
    near = exact.abs() > 4 * torch.finfo(dtype).tiny
    error = (found.double() - exact).abs() / exact.abs()
    assert error[near].max() <= 0.51 * torch.finfo(dtype).eps


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(loss: Callable[..., Tensor], reduction: str) -> None:
    values = torch.tensor(VALUES)
    x, target = torch.cartesian_prod(values, values).unbind(1)
    function = functools.partial(loss, reduction=reduction)
    assert_gradients_are_loops(function, x.contiguous().requires_grad_(), target.contiguous())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy(reduction: str, weighted: bool) -> None:
    values = torch.tensor(INSIDE)
    x, target = torch.cartesian_prod(values, values).unbind(1)
    weight = torch.linspace(0, 2, len(x)) if weighted else None
    loss = nn.BCELoss(weight=weight, reduction=reduction)
    assert_gradients_are_loops(loss, x.contiguous().requires_grad_(), target.contiguous())


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
@pytest.mark.parametrize("tangent", [-1.0, -0.0, math.inf, math.nan])
def test_gradients_beside_an_extreme_are_the_zeros_of_eager(name: str, tangent: float) -> None:
    """On a CPU it fills in the gradient where the extreme is; times a mask it is -0.0 or NaN."""
    function = getattr(torch, name)
    found = []
    for run in (function, fusewright.compile(lambda x: function(x), options={"strict": True})):
        x = torch.tensor([1.0, 3.0, 2.0, 3.0, 1.0], requires_grad=True)
        found += torch.autograd.grad(run(x), x, torch.tensor(tangent))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0, equal_nan=True)
    negative = [(gradient == 0) & gradient.signbit() for gradient in found]
    assert torch.equal(*negative)
