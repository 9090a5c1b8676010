"""Every float that functions of torch take, as one that varies: compiled once for all, or for each
with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.api import compilations

Program = Callable[[Tensor, float], Any]
VALUES = (0.5, 0.25, 0.75, 0.375)
TARGETS = torch.tensor([0, 2, 1, 3])
IMAGE = torch.linspace(-1, 1, 96, dtype=torch.float64).view(2, 4, 3, 4).sin()
MODULES = torch.linspace(0.1, 1, 4, dtype=torch.float64)


def example(dtype: torch.dtype = torch.float64, rows: int = 4, columns: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(rows * columns)
    return torch.randn(rows, columns, dtype=dtype, generator=generator)


def signs(x: Tensor) -> Tensor:
    return torch.where(x.detach() > 0, 1.0, -1.0).to(x.dtype)


def images(x: Tensor) -> Tensor:
    return torch.stack([x, x.cos(), x * x, -x], 1).unsqueeze(-1) * IMAGE[0, 0, 0].to(x.dtype)


def written(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    copy = x.clone()
    write(copy)
    return copy


WITH_GRADIENTS: dict[str, Program] = {
    "elu": lambda x, s: F.elu(x, s),
    "celu": lambda x, s: F.celu(x, s),
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "threshold": lambda x, s: F.threshold(x, s, s),
    "hardtanh": lambda x, s: F.hardtanh(x, -s, s),
    "hardshrink": lambda x, s: F.hardshrink(x, s),
    "softshrink": lambda x, s: F.softshrink(x, s),
    "softplus": lambda x, s: F.softplus(x, s, 8 * s),
    "rrelu": lambda x, s: F.rrelu(x, s / 4, s),
    "prelu": lambda x, s: F.prelu(x, torch.tensor(s, dtype=x.dtype)),
    "dropout": lambda x, s: F.dropout(x, s),
    "dropout evaluated": lambda x, s: F.dropout(x, s, training=False),
    "dropout1d": lambda x, s: F.dropout1d(images(x)[..., 0], s),
    "dropout2d": lambda x, s: F.dropout2d(images(x), s),
    "alpha_dropout": lambda x, s: F.alpha_dropout(x, s, training=True),
    "feature_alpha_dropout": lambda x, s: F.feature_alpha_dropout(images(x), s, training=True),
    "layer_norm": lambda x, s: F.layer_norm(x, x.shape[1:], x[0], x[1], eps=s),
    "rms_norm": lambda x, s: F.rms_norm(x, x.shape[1:], x[0], eps=s),
    "group_norm": lambda x, s: F.group_norm(images(x), 2, images(x)[0, :, 0, 0], eps=s),
    "instance_norm": lambda x, s: F.instance_norm(images(x), eps=s),
    "batch_norm": lambda x, s: F.batch_norm(images(x), None, None, training=True, eps=s),
    "batch_norm evaluated": lambda x, s: F.batch_norm(
        images(x), MODULES.to(x.dtype), MODULES.to(x.dtype), eps=s
    ),
    "normalize": lambda x, s: F.normalize(x, eps=s),
    "local_response_norm": lambda x, s: F.local_response_norm(images(x), 3, s, 0.75, s),
    "cross_entropy": lambda x, s: F.cross_entropy(x, TARGETS, label_smoothing=s),
    "cross_entropy ignoring": lambda x, s: F.cross_entropy(
        x, TARGETS, ignore_index=2, label_smoothing=s, reduction="sum"
    ),
    "cross_entropy of each": lambda x, s: F.cross_entropy(
        x, TARGETS, label_smoothing=s, reduction="none"
    ),
    "cross_entropy of distributions": lambda x, s: F.cross_entropy(
        x, x.detach().softmax(1), label_smoothing=s
    ),
    "huber_loss": lambda x, s: F.huber_loss(x, x.cos(), delta=s),
    "smooth_l1_loss": lambda x, s: F.smooth_l1_loss(x, x.cos(), beta=s, reduction="sum"),
    "hinge_embedding_loss": lambda x, s: F.hinge_embedding_loss(x, signs(x), margin=s),
    "margin_ranking_loss": lambda x, s: F.margin_ranking_loss(x, x.sin(), signs(x), margin=s),
    "cosine_embedding_loss": lambda x, s: F.cosine_embedding_loss(
        x, x.cos(), signs(x)[:, 0], margin=s
    ),
    "triplet_margin_loss": lambda x, s: F.triplet_margin_loss(
        x, x.cos(), x.sin(), margin=s, eps=s / 8, swap=True
    ),
    "gaussian_nll_loss": lambda x, s: F.gaussian_nll_loss(x, x.cos(), x * x + 0.1, eps=s),
    "poisson_nll_loss": lambda x, s: F.poisson_nll_loss(x * x, x * x, log_input=False, eps=s),
    "pairwise_distance": lambda x, s: F.pairwise_distance(x, x.cos(), eps=s),
    "cosine_similarity": lambda x, s: F.cosine_similarity(x, x.cos(), eps=4 * s),
    "scaled_dot_product_attention": lambda x, s: F.scaled_dot_product_attention(
        images(x), images(x), images(x), scale=s
    ),
    "gumbel_softmax": lambda x, s: F.gumbel_softmax(x, s),
    "pad": lambda x, s: F.pad(x, (1, 2), value=s),
    "clamp": lambda x, s: x.clamp(-s, s),
    "lerp": lambda x, s: torch.lerp(x, x.cos(), s),
    "add": lambda x, s: torch.add(x, x.cos(), alpha=s),
    "rsub": lambda x, s: torch.rsub(x, s, alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x.cos(), value=s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x, x.cos(), value=s),
    "addmm": lambda x, s: torch.addmm(x[:, :4], x, x.t(), beta=s, alpha=s),
    "baddbmm": lambda x, s: torch.baddbmm(x[:, :4], x[None], x.t()[None], beta=s, alpha=s),
    "addmv": lambda x, s: torch.addmv(x[:, 0], x, x[0], beta=s, alpha=s),
    "addr": lambda x, s: torch.addr(x, x[:, 0], x[0], beta=s, alpha=s),
    "pow": lambda x, s: x.abs() ** s + s**x,
    "float_power": lambda x, s: torch.float_power(x.abs(), s),
    "fmod": lambda x, s: torch.fmod(x, s),
    "remainder": lambda x, s: x % s,
    "div": lambda x, s: x / s + s / x,
    "copysign": lambda x, s: torch.copysign(x, s),
    "xlogy": lambda x, s: torch.xlogy(x, s),
    "xlog1py": lambda x, s: torch.special.xlog1py(x, s),
    "logit": lambda x, s: torch.logit(x.sigmoid(), eps=s / 4),
    "nan_to_num": lambda x, s: torch.nan_to_num(x.log(), nan=s),
    "where": lambda x, s: torch.where(x > 0, x, s),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "index_fill": lambda x, s: x.index_fill(0, TARGETS[:2], s),
    "scatter": lambda x, s: x.scatter(0, TARGETS[None, :2], s),
    "scatter reducing": lambda x, s: x.detach().scatter(0, TARGETS[None, :2], s, reduce="add") + x,
    "index_add": lambda x, s: x.index_add(0, TARGETS, x.cos(), alpha=s),
    "index_put": lambda x, s: x.index_put((TARGETS[:2],), torch.tensor(s, dtype=x.dtype)),
    "items set": lambda x, s: written(x, lambda y: y.__setitem__(TARGETS[:2], s)),
    "items of a mask set": lambda x, s: written(x, lambda y: y.__setitem__(y > 0, s)),
    "fill_diagonal_": lambda x, s: x.clone().fill_diagonal_(s),
    "trapezoid": lambda x, s: torch.trapezoid(x, dx=s),
    "cumulative_trapezoid": lambda x, s: torch.cumulative_trapezoid(x, dx=s),
    "lists": lambda x, s: torch._foreach_addcmul(torch._foreach_mul([x], s), [x], [x], s),
}

OF_NUMBERS: dict[str, Program] = {
    "tensor": lambda x, s: (
        torch.tensor(s),
        torch.tensor([[s, 1], [2, 2 * s]]),
        torch.as_tensor(s),
    ),
    "new_tensor": lambda x, s: (x.new_tensor(s), x.new_tensor([s, 1.0])),
    "scalar_tensor": lambda x, s: torch.scalar_tensor(s),
    "full": lambda x, s: (torch.full((3,), s), torch.full_like(x, s), x.new_full((2,), s)),
    "fill_": lambda x, s: x.clone().fill_(s),
    "arange": lambda x, s: torch.arange(s / 8, 4 + s / 8),
    "linspace": lambda x, s: torch.linspace(-s, s, 8),  # of 7, the middle is rounding alone
    "logspace": lambda x, s: torch.logspace(0.0, s, 5),
    "windows": lambda x, s: torch.signal.windows.general_hamming(7, alpha=s),
    "heaviside": lambda x, s: torch.heaviside(x.round(), torch.tensor(s, dtype=x.dtype)),
    "rounded division": lambda x, s: (x // s, s // x, torch.div(x, s, rounding_mode="trunc")),
    "zeta": lambda x, s: torch.special.zeta(x.abs() + 2, s + 1),
    "isclose": lambda x, s: torch.isclose(x, x.cos(), rtol=s, atol=s),
    "bucketize": lambda x, s: torch.bucketize(s, x[0].sort()[0]),
    "searchsorted": lambda x, s: torch.searchsorted(x[0].sort()[0], s),
    "affine_grid": lambda x, s: F.affine_grid(torch.tensor([[[s, 0, 0], [0, s, 0]]]), [1, 1, 3, 3]),
    "bernoulli": lambda x, s: (torch.bernoulli(x, s), x.clone().bernoulli_(s)),
    "uniform": lambda x, s: x.clone().uniform_(0, s),
    "normal": lambda x, s: (torch.normal(s, s, (3,)), torch.normal(x, s), x.clone().normal_(s, s)),
    "exponential": lambda x, s: x.clone().exponential_(s),
    "geometric": lambda x, s: x.clone().geometric_(s),
    "log_normal": lambda x, s: x.clone().log_normal_(s, s),
    "cauchy": lambda x, s: x.clone().cauchy_(s, s),
    "running statistics": lambda x, s: _running(x, s),
    "math": lambda x, s: x * (math.sin(s) + math.exp(s) - math.log(s, 3) + math.tanh(s) ** 2),
    "more of math": lambda x, s: x * (math.atan2(s, 2) + math.fabs(-s) + math.degrees(s)),
    "lists": lambda x, s: torch._foreach_lerp(torch._foreach_clamp_min([x], s), [x], s),
    "remainders": lambda x, s: x * (s % 0.3 + s // 0.3 + divmod(s, -0.2)[1] + math.fmod(s, -0.4)),
    "an absolute value": lambda x, s: x * abs(0.4 - s),
    "finite": lambda x, s: x * s if math.isfinite(s) and not math.isnan(s) else x,
}


def _running(x: Tensor, momentum: float) -> Any:
    mean, variance = torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)
    F.batch_norm(images(x), mean, variance, training=True, momentum=momentum)
    return mean, variance


FOR_EACH: dict[str, tuple[Program, str]] = {
    "p of a norm": (lambda x, s: x.norm(s), "it chooses the formula"),
    "p of a distance": (lambda x, s: torch.cdist(x, x, p=s), "it chooses the formula"),
    "scale_factor": (
        lambda x, s: F.interpolate(images(x), scale_factor=1 + s, mode="bilinear"),
        "it decides sizes",
    ),
    "steps of a range": (lambda x, s: torch.arange(0.0, 4.0, s), "it decides sizes"),
    "slopes drawn": (lambda x, s: F.rrelu(x, s / 4, s, training=True), "a library call takes it"),
    "quantile": (lambda x, s: torch.quantile(x, s), "a library call takes it"),
    "correction": (lambda x, s: x.var(correction=s), "a library call takes it"),
    "max_norm": (
        lambda x, s: F.embedding(TARGETS, x.clone(), max_norm=s),
        "a library call takes it",
    ),
    "rounding": (lambda x, s: x * round(s, 2), "Python needs it"),
    "complex": (lambda x, s: x * complex(s, 1), "Python needs it"),
    "an integer": (lambda x, s: x * int(8 * s), "an integer may decide sizes"),
}
"""With why the program is compiled for each."""


CONSTANT = frozenset(
    {
        *("celu", "rrelu", "alpha_dropout", "feature_alpha_dropout", "float_power", "logit"),
        *("layer_norm", "rms_norm", "group_norm", "instance_norm", "running statistics"),
        *("batch_norm", "batch_norm evaluated", "nan_to_num", "isclose", "linspace", "logspace"),
        *("cross_entropy", "cross_entropy ignoring", "cross_entropy of each"),
        *("cross_entropy of distributions", "huber_loss", "smooth_l1_loss", "poisson_nll_loss"),
        *("hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss"),
        *("triplet_margin_loss", "pairwise_distance", "cosine_similarity"),
        *("trapezoid", "cumulative_trapezoid"),
    }
)
"""Functions whose C++ takes the float as a plain number, and which no program was seen to give one
that varies: they are compiled for each.
"""


def compiles(name: str, count: int) -> int:
    """How often a program is compiled that is called with `count` numbers."""
    return count if name in CONSTANT else 2


def calls(program: Program, **options: Any) -> int:
    """How often it is compiled; results must be eager's, in its layout."""
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True}, **options)
    for value in VALUES:
        torch.manual_seed(0)
        expected = program(example(), value)
        torch.manual_seed(0)
        found = compiled(example(), value)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9, equal_nan=True)
        if isinstance(found, Tensor):
            assert found.stride() == expected.stride()
    return len(compilations(compiled))


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_float_that_varies(name: str) -> None:
    assert calls(OF_NUMBERS[name]) == compiles(name, len(VALUES))


@pytest.mark.parametrize("name", FOR_EACH)
def test_a_float_that_is_compiled_for_each_time(name: str) -> None:
    program, _ = FOR_EACH[name]
    assert calls(program) == len(VALUES)


def gradient(function: Program, x: Tensor, value: float) -> tuple[Tensor, Tensor | None]:
    torch.manual_seed(0)
    result = function(x, value)
    results = [result] if isinstance(result, Tensor) else result
    total = torch.stack([each.sin().sum() for each in results]).sum()
    (found,) = torch.autograd.grad(total, x, allow_unused=True)
    return total.detach(), found


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name: str) -> None:
    program = WITH_GRADIENTS[name]
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for value in VALUES[:3]:
        x = example().requires_grad_()
        wanted, found = (gradient(each, x, value) for each in (program, compiled))
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert len(compilations(compiled)) == compiles(name, 3)


@pytest.mark.parametrize("name", WITH_GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_types_and_layouts(name: str, dtype: torch.dtype) -> None:
    program = WITH_GRADIENTS[name]
    if name == "local_response_norm" and dtype is torch.bfloat16:
        pytest.skip("eager pools no bfloat16")
    if name == "rrelu" and dtype is torch.bfloat16:
        pytest.skip("torch's functional form, which aot_eager calls, keeps strides; eager does not")
    x = example(dtype) if dtype is torch.float32 else example(dtype, 6, 4).t()
    compiled = fusewright.compile(program, backend="aot_eager", dynamic=True, fullgraph=True)
    for value in VALUES[:2]:
        results = []
        for call in (program, compiled):
            torch.manual_seed(0)
            results.append(call(x, value))
        expected, found = results
        close = 1e-4 if dtype is torch.float32 else 0.05
        torch.testing.assert_close(found, expected, rtol=close, atol=close / 2)
        if isinstance(found, Tensor):
            assert found.stride() == expected.stride()
