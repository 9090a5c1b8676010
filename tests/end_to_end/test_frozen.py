"""Frozen inference gives eager's results: of convolutions with batch norms of every kind, for any
size, on NaN, under autocast, in threads; and weights that change later are noticed.
"""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from fusewright.errors import FrozenWeightChanged
from tests.relative_error import relative_error

FREEZE = {"freeze": True, "verify": True, "eager_where_faster": False}


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def with_statistics(model: nn.Module) -> nn.Module:
    """The model in evaluation, its batch norms with statistics and weights of their own."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                module.weight.normal_()
                module.bias.normal_()
    return model.eval()


def images() -> nn.Module:
    return with_statistics(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 5),
        )
    )


def frozen(model: Any, **options: Any) -> Any:
    keywords = options.pop("keywords", {})
    return fusewright.compile(model, options={**FREEZE, **options}, **keywords)


def is_as_exact(compiled: Any, model: nn.Module, x: torch.Tensor) -> bool:
    """Whether results are as near to float64's as eager's, give or take another order of sums."""
    exact = copy.deepcopy(model).double()(x.double())
    result, expected = compiled(x), model(x)
    assert result.stride() == expected.stride()
    roundings = 8 if x.dtype is torch.float64 else 1  # Eager's result is what is held for exact.
    allowed = 4 * relative_error(expected, exact) + roundings * torch.finfo(x.dtype).eps
    return relative_error(result, exact) <= allowed


LAYERS: dict[str, tuple[Callable[[], list[nn.Module]], tuple[int, ...]]] = {
    "plain": (lambda: [nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8)], (2, 6, 9, 7)),
    "without bias": (lambda: [nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8)], (2, 6, 9, 7)),
    "without weights": (
        lambda: [nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8, affine=False)], (2, 6, 9, 7),
    ),
    "depthwise": (
        lambda: [nn.Conv2d(6, 6, 5, groups=6, padding=2), nn.BatchNorm2d(6)], (2, 6, 9, 7),
    ),
    "groups, strides, dilation": (
        lambda: [nn.Conv2d(6, 4, 3, stride=2, dilation=2, groups=2), nn.BatchNorm2d(4)],
        (2, 6, 12, 11),
    ),
    "padding by name": (
        lambda: [nn.Conv2d(6, 8, 4, padding="same"), nn.BatchNorm2d(8)], (2, 6, 9, 7),
    ),
    "transposed": (lambda: [nn.ConvTranspose2d(6, 8, 3), nn.BatchNorm2d(8)], (2, 6, 9, 7)),
    "one dimension": (lambda: [nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8)], (2, 6, 9)),
    "three dimensions": (lambda: [nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4)], (2, 3, 5, 4, 6)),
    "one image": (lambda: [nn.Conv2d(3, 8, 3)], (3, 9, 9)),
    "one row and channel": (lambda: [nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)], (1, 1, 1, 5)),
    "linear": (lambda: [nn.Linear(6, 8), nn.BatchNorm1d(8)], (4, 6)),
    "norm of an input": (lambda: [nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3)], (2, 6, 9, 7)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    layers, size = LAYERS[name]
    model = with_statistics(nn.Sequential(*layers(), nn.SiLU())).to(dtype)
    compiled = frozen(model, strict=True, keywords={"fullgraph": True})
    x = torch.randn(size, dtype=dtype)
    for _ in range(2):
        assert is_as_exact(compiled, model, x)


def test_batch_norms_are_folded_and_weights_packed_once() -> None:
    model = images()
    compiled = frozen(model, strict=True)
    x = torch.randn(2, 3, 12, 12)
    compiled(x)
    assert is_as_exact(compiled, model, x)
    (compilation,) = fusewright.compilations(compiled)
    calls = list(compilation.record.extern_calls)
    packed = "mkldnn._convolution_pointwise.default"
    assert calls.count(packed) == 2 or not torch.backends.mkldnn.is_available()
    told = str(fusewright.explain(compiled).history)
    assert "(frozen: 4 tensors, computed of 11 weights, 0.0 MiB)" in told
    text = str(compilation.record.program.origins)
    assert "batch_norm" not in text and "rsqrt" not in text


def test_what_follows_a_convolution_twice_is_not_folded() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return self.norm(y) + y, self.norm(x[:, :1].expand(-1, 4, -1, -1))

    model = with_statistics(Twice())
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(frozen(model)(x), model(x))


def test_any_size() -> None:
    model = images()
    compiled = frozen(model, keywords={"dynamic": True})
    varying = frozen(model)
    for batch, width in ((2, 12), (3, 15), (5, 12), (1, 20)):
        x = torch.randn(batch, 3, 12, width)
        assert is_as_exact(compiled, model, x) and is_as_exact(varying, model, x)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_special_values(number: float) -> None:
    model = images()[:4]
    x = torch.randn(2, 3, 12, 12)
    x[0, 1, 3, 4] = number
    torch.testing.assert_close(frozen(model)(x), model(x), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_nothing_and_channels_last() -> None:
    model = images()
    compiled = frozen(model)
    assert compiled(torch.randn(0, 3, 12, 12)).shape == (0, 5)
    x = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    assert is_as_exact(compiled, model, x)


def test_autocast() -> None:
    model = images()
    compiled = frozen(model)
    x = torch.randn(2, 3, 12, 12)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=0.05, atol=0.05)


def test_what_is_computed_of_weights_alone_is_computed_once() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))
            self.scale = nn.Parameter(torch.randn(64, 1))
            self.positions = nn.Embedding(64, 64)

        def forward(self, x: Any) -> Any:
            weight = self.weight * torch.exp(self.scale)
            places = self.positions(torch.arange(x.shape[0]))
            return (x + places) @ weight.t(), weight * 2

    model = Scaled()
    compiled = frozen(model, strict=True)
    x = torch.randn(16, 64)
    for _ in range(2):
        result, doubled = compiled(x)
        torch.testing.assert_close((result, doubled), model(x))
        doubled.zero_()  # A result has memory of its own.
    (compilation,) = fusewright.compilations(compiled)
    operators = {origin.operator for origins in compilation.record.program.origins.values()
                 for origin in origins}  # fmt: skip
    assert "aten.exp.default" not in operators and "aten.embedding.default" not in operators


def write_in_place(model: nn.Module) -> None:
    model[1].weight.mul_(2)


def put_another(model: nn.Module) -> None:
    model[1].weight = nn.Parameter(torch.randn(8))


def set_data(model: nn.Module) -> None:
    model[1].weight.data = torch.randn(8)


def load(model: nn.Module) -> None:
    model.load_state_dict(images().state_dict())


def write_statistics(model: nn.Module) -> None:
    model[1].running_var.fill_(3)


def write_through_a_view(model: nn.Module) -> None:
    model[4].weight.view(-1)[3:].zero_()


CHANGES = [write_in_place, put_another, set_data, load, write_statistics, write_through_a_view]


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changes(change: Callable[[nn.Module], None]) -> None:
    model = images()
    compiled, strict = frozen(model), frozen(model, strict=True)
    x = torch.randn(2, 3, 12, 12)
    compiled(x), strict(x)
    torch.manual_seed(1)
    change(model)
    with pytest.raises(FrozenWeightChanged, match=r"self\[\d\]\.(weight|running_var) has changed"):
        strict(x)
    with pytest.warns(RuntimeWarning, match="has changed since its values were frozen") as told:
        assert is_as_exact(compiled, model, x)
        change(model)
        assert is_as_exact(compiled, model, x)
    assert len(told) == 1


def test_what_stays_is_not_told_of() -> None:
    model = images()
    compiled = frozen(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            model[9].weight.mul_(1.5)  # It is read as it is.
            assert is_as_exact(compiled, model, torch.randn(2, 3, 12, 12))


@pytest.mark.filterwarnings("ignore:fusewright")
def test_one_function_of_many_models() -> None:
    models = [images() for _ in range(3)]
    compiled = frozen(lambda model, x: model(x))
    x = torch.randn(2, 3, 12, 12)
    for _ in range(2):
        for model in models:
            torch.testing.assert_close(compiled(model, x), model(x))


def test_statistics_that_are_gathered() -> None:
    model = images().train()
    other = copy.deepcopy(model)
    compiled = frozen(model)
    for _ in range(3):
        x = torch.randn(2, 3, 12, 12)
        torch.testing.assert_close(compiled(x), other(x))
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        model = images()
        compiled = frozen(model)
        x = torch.randn(2, 3, 12, 12)
        for _ in range(3):  # Torch counts no writes to them.
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            model[1].weight.mul_(1.5)
    model = images()
    compiled = frozen(model)
    with torch.inference_mode():
        compiled(x)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_weights_that_share_memory_with_what_is_written() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.randn(4, 4))
            self.register_buffer("part", self.whole[:2])
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Any) -> Any:
            self.whole.add_(1)
            x.mul_(2)
            return x + torch.exp(self.part * 0.1).sum(), torch.exp(self.weight * 0.1) * x

    model = Writes()
    other = copy.deepcopy(model)
    other.part = other.whole[:2]
    compiled = frozen(model)
    for _ in range(2):
        x = torch.randn(4, 4)
        torch.testing.assert_close(compiled(x.clone()), other(x.clone()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # The argument is the weight.
            result = compiled(model.weight.view(4, 4))
            torch.testing.assert_close(result, other(other.weight.view(4, 4)))
            torch.testing.assert_close(model.weight, other.weight)


def test_frozen_code_keeps_no_model_alive() -> None:
    model = images()
    compiled = frozen(lambda model, x: model(x))
    compiled(model, torch.randn(2, 3, 12, 12))
    weight = weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert weight() is None


@pytest.mark.filterwarnings("ignore:fusewright")
def test_graph_breaks_and_parameters_that_are_put_in() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = images()

        def forward(self, x: Any) -> Any:
            y = self.inner[:4](x)
            fusewright.graph_break()
            return self.inner[4:](y)

    model, x = Breaks(), torch.randn(2, 3, 12, 12)
    compiled = frozen(model)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        model.inner[5].weight.mul_(2)
    doubled = {name: value * 2 for name, value in model.named_parameters()}
    torch.testing.assert_close(
        torch.func.functional_call(compiled, doubled, (x,)),
        torch.func.functional_call(model, doubled, (x,)),
        rtol=1e-3,
        atol=1e-3,
    )
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["native", "python", "fx"])
@pytest.mark.parametrize(
    "checks", [{}, {"check_nan": True, "check_layouts": True}, {"debug_printer": "print"}]
)
def test_targets_and_checks(target: str, checks: dict[str, Any]) -> None:
    model = images()
    compiled = frozen(model, strict=True, target=target, **checks)
    for _ in range(2):
        assert is_as_exact(compiled, model, torch.randn(2, 3, 12, 12))


def test_gradients_are_told_of() -> None:
    model = images()
    x = torch.randn(2, 3, 12, 12)
    with torch.enable_grad(), pytest.warns(RuntimeWarning, match="freezes nothing"):
        frozen(model)(x).sum().backward()
    gradient = model[0].weight.grad
    model.zero_grad()
    with torch.enable_grad():
        model(x).sum().backward()
    torch.testing.assert_close(gradient, model[0].weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:fusewright")
def test_threads() -> None:
    model = images()
    compiled = frozen(model)
    inputs = [torch.randn(2, 3, 12, 12) for _ in range(8)]
    for _ in range(3):
        expected = [model(x) for x in inputs]

        def call(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return compiled(x)

        with ThreadPoolExecutor(8) as pool:
            torch.testing.assert_close(list(pool.map(call, inputs)), expected)
        model[1].weight.mul_(1.5)
