"""Convolutions as on a GPU, here on the CPU: operands with channels last, biases added by kernels;
results are eager's, laid out as eager's.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import fusewright
from fusewright.ir.dtype import DType
from fusewright.lower import convolution
from fusewright.lower.builder import ProgramBuilder
from fusewright.runtime import generated

OPTIONS = {"strict": True, "verify": True}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "is_on_gpu", lambda layout: True)
    monkeypatch.setattr(convolution, "HALF", (DType.F32,))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results of library calls that did not lie as was compiled for."""
    found: list[Any] = []
    usual = generated.with_layout

    def watched(tensor: Any, size: Any, stride: Any, dtype: Any) -> Any:
        laid = usual(tensor, size, stride, dtype)
        if laid is not tensor:
            found.append((tensor.stride(), stride))
        return laid

    monkeypatch.setattr(generated, "with_layout", watched)
    return found


class Residual(nn.Module):
    """A block as those of ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        return functional.relu(self.second(functional.relu(self.norm(self.first(x)))) + x)


def network() -> nn.Module:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, Residual(16), Residual(16), nn.Conv2d(16, 8, 2)).eval()


def test_a_chain_copies_nothing_in_between(copies: list[Any]) -> None:
    model, x = network(), torch.randn(2, 3, 33, 33)
    compiled = fusewright.compile(model, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5, check_stride=True)
    assert copies == []


def test_pooled_images_have_channels_last_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions read what pooling computes, and no copies of it."""

    def f(x: Any, weight: Any) -> Any:
        y = functional.conv2d(x, weight)
        largest, mean = functional.max_pool2d(y, 3, 2, 1), functional.avg_pool2d(y, 2)
        return [functional.conv2d(z, w) for z in (largest, mean) for w in (weight, weight + 1)]

    copied: list[int] = []
    copy = ProgramBuilder.copy

    def noted(builder: ProgramBuilder, box: Any, *arguments: Any) -> Any:
        copied.append(int(box.size[-1]))
        return copy(builder, box, *arguments)

    monkeypatch.setattr(ProgramBuilder, "copy", noted)
    x, weight = torch.randn(2, 8, 17, 17), torch.randn(8, 8, 3, 3)
    with torch.no_grad():
        result = fusewright.compile(f, fullgraph=True, options=OPTIONS)(x, weight)
        torch.testing.assert_close(result, f(x, weight), rtol=1e-4, atol=1e-4, check_stride=True)
    assert {17, 3} & set(copied) and not {8, 7} & set(copied)
    copied.clear()
    x, weight = torch.randn(2, 5, 17, 17), torch.randn(5, 5, 3, 3)  # as the library has them
    with torch.no_grad():
        fusewright.compile(f, fullgraph=True, options=OPTIONS)(x, weight)
    assert copied == []


def test_other_convolutions() -> None:
    def f(x: Any, weight: Any, bias: Any, line: Any, taps: Any) -> Any:
        grouped = functional.conv2d(x, weight[:, :1], bias, groups=4)
        transposed = functional.conv_transpose2d(x, weight.transpose(0, 1)[:4], None)
        return grouped + 1, transposed, functional.conv1d(line, taps, taps[:, 0, 0])

    inputs = [
        torch.randn(*size) for size in ((2, 4, 9, 9), (8, 4, 3, 3), (8,), (2, 3, 20), (5, 3, 4))
    ]
    with torch.no_grad():
        found = fusewright.compile(f, fullgraph=True, options=OPTIONS)(*inputs)
        torch.testing.assert_close(found, f(*inputs), rtol=1e-4, atol=1e-5, check_stride=True)


def test_library_calls_get_what_lies_as_eagers(copies: list[Any]) -> None:
    """Their results would lie as their argument does: computed so, or copied before the call."""

    def f(x: Any, weight: Any, channelwise: Any) -> Any:
        y = functional.conv2d(x, weight)
        z = functional.conv2d(functional.relu(y), channelwise, groups=4)
        w = functional.adaptive_avg_pool2d(functional.conv2d(z, weight), (4, 3))
        return z + 1, functional.conv2d(w, weight[:, :, :1, :1]), y[:, 1:3] * 2

    x, weight, channelwise = (
        torch.randn(2, 4, 17, 17),
        torch.randn(4, 4, 3, 3),
        torch.ones(4, 1, 3, 3),
    )
    with torch.no_grad():
        found = fusewright.compile(f, fullgraph=True, options=OPTIONS)(x, weight, channelwise)
        wanted = f(x, weight, channelwise)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, check_stride=True)
    assert copies == []


def test_results_of_half_way_lie_as_eagers() -> None:
    """What is given back, also as a view, is as eager lays it out."""

    x, weight = torch.randn(2, 4, 9, 9), torch.randn(3, 4, 3, 3)

    def f(x: Any, weight: Any) -> Any:
        y = functional.conv2d(x, weight)
        z = functional.relu(y)
        return y, z[:, 1:3], z.flatten(1), z.mean((2, 3)), functional.conv2d(z, weight[:, :3])

    with torch.no_grad():
        found = fusewright.compile(f, fullgraph=True, options=OPTIONS)(x, weight)
        torch.testing.assert_close(found, f(x, weight), rtol=1e-4, atol=1e-5, check_stride=True)


def test_memory_that_the_program_looks_at_lies_as_eagers() -> None:
    def f(x: Any, weight: Any) -> Any:
        y = functional.relu(functional.conv2d(x, weight))
        return y.as_strided((5, 4), (7, 2), 3)

    x, weight = torch.randn(2, 4, 9, 9), torch.randn(3, 4, 3, 3)
    with torch.no_grad():
        found = fusewright.compile(f, fullgraph=True, options=OPTIONS)(x, weight)
    torch.testing.assert_close(found, f(x, weight), rtol=1e-4, atol=1e-5)


def test_training_lays_out_what_is_kept_as_eager_does() -> None:
    model, x = network(), torch.randn(2, 3, 33, 33)
    compiled = fusewright.compile(model, fullgraph=True, options=OPTIONS)
    compiled(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    model(x).square().sum().backward()
    wanted = [parameter.grad for parameter in model.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_images_of_any_size(copies: list[Any]) -> None:
    model = network()
    compiled = fusewright.compile(model, fullgraph=True, dynamic=True, options=OPTIONS)
    with torch.no_grad():
        for size in ((2, 3, 33, 33), (3, 3, 41, 37)):
            x = torch.randn(*size)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert copies == []
