"""Convolutions by a weight of one pixel are matrix products of kernels, and so are their gradients:
results, gradients and how they lie are eager's, errors at most eager's against float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fusewright
from fusewright.runtime.llvm_engine import cpu_target

STRICT: dict[str, Any] = {"strict": True, "verify": True}

multiplies = pytest.mark.skipif(
    cpu_target().vector_bytes == 0, reason="no vectors: the library's products are kept"
)


def images(*size: int, lie: str = "contiguous", dtype: torch.dtype = torch.float32) -> Tensor:
    if lie == "a part":
        whole = torch.randn(*size[:2], *(length + 1 for length in size[2:]), dtype=dtype)
        for dimension, length in enumerate(size[2:], 2):
            whole = whole.narrow(dimension, 0, length)
        return whole
    tensor = torch.randn(*size, dtype=dtype)
    return tensor.to(memory_format=torch.channels_last) if lie == "channels last" else tensor


def layer(inputs: int, outputs: int, dimensions: int, **options: Any) -> nn.Module:
    kind: Callable[..., nn.Module] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    return kind(inputs, outputs, 1, **options)


def results(model: Any, module: nn.Module, x: Tensor) -> list[Tensor]:
    """The result, and the gradients of the input and the parameters."""
    y = model(x)
    weights = (torch.arange(y.numel()) * 5 % 11 - 4).reshape(y.shape).to(y)  # exact in any type
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *module.parameters()])]


def steps(tensor: Tensor) -> list[int]:
    """Strides of dimensions of several elements: how eager tells the others depends on threads."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize(
    ("size", "inputs", "outputs"),
    [((5,), 7, 6), ((6, 7), 48, 33), ((2, 2), 96, 64), ((14, 1), 3, 8), ((4, 3, 5), 8, 16)],
)
@pytest.mark.parametrize("lie", ["contiguous", "channels last", "a part"])
def test_results_and_gradients(
    batch: int, size: tuple[int, ...], inputs: int, outputs: int, lie: str
) -> None:
    bias = batch != 9
    if lie == "channels last" and len(size) != 2:
        pytest.skip("channels last is for images")
    torch.manual_seed(0)
    module = layer(inputs, outputs, len(size), bias=bias)
    x = images(batch, inputs, *size, lie=lie).requires_grad_()
    compiled = fusewright.compile(module, fullgraph=True, options=STRICT, dynamic=batch == 3)
    ours = results(compiled, module, x)
    eager = results(module, module, x)
    double = layer(inputs, outputs, len(size), bias=bias).double()
    double.load_state_dict(module.state_dict())
    exact = results(double, double, x.detach().double().requires_grad_())
    for result, expected, best in zip(ours, eager, exact, strict=True):
        assert steps(result) == steps(expected)
        error, allowed = (float((tensor - best).detach().norm()) for tensor in (result, expected))
        assert error <= 2 * allowed + 1e-6 * float(best.detach().norm())


@multiplies
@pytest.mark.parametrize("lie", ["contiguous", "channels last"])
def test_no_library_is_called(lie: str) -> None:
    module = nn.Sequential(layer(16, 32, 2), nn.BatchNorm2d(32), nn.ReLU(), layer(32, 8, 2))
    x = images(2, 16, 6, 6, lie=lie).requires_grad_()
    compiled = fusewright.compile(module, fullgraph=True, options=STRICT)
    compiled(x).square().sum().backward()
    (graph,) = fusewright.explain(compiled)(x).graphs
    assert graph.library_calls == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: functional.conv2d(x, w, stride=2),
        lambda x, w: functional.conv2d(x, w, padding=1),
        lambda x, w: functional.conv2d(x, w[:, :4], groups=2),
        lambda x, w: functional.conv_transpose2d(x, w.transpose(0, 1)),
        lambda x, w: functional.conv2d(x[:, :, ::2], w),
        lambda x, w: functional.conv2d(x.double(), w.double()),
    ],
)
def test_others_stay_library_calls(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, weight = torch.randn(2, 8, 6, 6), torch.randn(4, 8, 1, 1)
    with torch.no_grad():
        compiled = fusewright.compile(call, fullgraph=True, options=STRICT)
        torch.testing.assert_close(compiled(x, weight), call(x, weight), check_stride=True)
        (graph,) = fusewright.explain(compiled)(x, weight).graphs
    assert graph.library_calls


@multiplies
def test_half_precision_adds_up_in_single() -> None:
    torch.manual_seed(0)
    module = layer(256, 8, 2).half()
    x = images(1, 256, 9, 9, dtype=torch.float16).requires_grad_()
    ours = results(fusewright.compile(module, fullgraph=True, options=STRICT), module, x)
    double = layer(256, 8, 2).double()
    double.load_state_dict(module.state_dict())
    for result, best in zip(
        ours, results(double, double, x.detach().double().requires_grad_()), strict=True
    ):
        assert (result.double() - best).norm() <= 2e-3 * best.norm()


@multiplies
def test_only_the_gradient_that_is_asked_for() -> None:
    module = layer(16, 8, 2)
    x = images(2, 16, 6, 6)
    compiled = fusewright.compile(module, fullgraph=True, options=STRICT)
    compiled(x).sum().backward()
    ours = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    for gradient, parameter in zip(ours, module.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)
