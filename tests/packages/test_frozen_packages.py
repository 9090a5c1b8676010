"""Packages that hold what was computed of weights in their place: as exact as eager, and weights
that they no longer hold are refused by name.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import fusewright
from fusewright.errors import PackageRefused
from fusewright.packages.container import read_package

FREEZE = {"freeze": True}


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Model(nn.Module):
    """A convolution with a batch norm, which are packed and folded; a layer that stays as it is; a
    weight that only its square is read of; and a counter that is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        self.last = nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = torch.relu(self.norm(self.convolution(x)))
        return self.last(y.mean((2, 3))) @ (self.scale @ self.scale)

    def image(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The first layers, and weights that are frozen, too: one itself, and a view of one."""
        y = self.norm(self.convolution(x))
        return y, self.convolution.weight, self.norm.bias[2:4]


@pytest.fixture
def model() -> Model:
    return Model().eval()


def made(model: Model, path: Path, **keywords: object) -> Path:
    x = torch.randn(2, 3, 9, 9)
    return fusewright.aot_compile(model, (x,), None, path, options=FREEZE, **keywords)


@pytest.mark.parametrize("rows", [2, 5])
def test_results_are_as_exact_as_eagers(model: Model, rows: int, tmp_path: Path) -> None:
    shapes = None if rows == 2 else {"x": {0: torch.export.Dim("rows", max=64)}}
    path = made(copy.deepcopy(model), tmp_path / "p", dynamic_shapes=shapes)
    package = fusewright.load(path)
    x = torch.randn(rows, 3, 9, 9)
    exact = copy.deepcopy(model).double()(x.double())
    expected = model(x)
    assert (package(x).double() - exact).norm() <= 4 * (expected.double() - exact).norm() + 1e-6
    x[0, 1, 2, 3] = float("nan")
    found = package(x)
    assert found.isnan().equal(model(x).isnan())
    assert package.weights["calls"].item() == model.calls.item() == 2
    same = [w["name"] for w in package.manifest["weights"]]
    assert sorted(same) == ["calls", "last.bias", "last.weight"]


def test_frozen_weights_are_refused_by_name(model: Model, tmp_path: Path) -> None:
    path = made(model, tmp_path / "p")
    words = "its weight scale was frozen"
    with pytest.raises(PackageRefused, match=words):
        fusewright.load(path, weights={"scale": torch.randn(4, 4)})
    package = fusewright.load(path)
    with pytest.raises(PackageRefused, match=r"its weight convolution\.weight was frozen"):
        package.use_weights(model)
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)
    model.last.weight.normal_()
    package.use_weights({"last.weight": model.last.weight})
    torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)


def test_values_are_not_left_out(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave out store_weights=False"):
        made(model, tmp_path / "p", store_weights=False)
    assert not list(tmp_path.iterdir())


def test_entry_points_and_levels(model: Model, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 9, 9)
    entries = {"image": fusewright.EntryPoint(model.image, (x,))}
    levels = ("avx2", "scalar")
    path = made(model, tmp_path / "p", entry_points=entries, processors=levels)
    package = fusewright.load(path)
    for result, expected in zip(package.image(x), model.image(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)
    stored = {row["name"] for row in package.manifest["weights"]}
    assert {"convolution.weight", "norm.bias"} <= stored, "results are these very weights"


def test_a_weight_is_stored_once(tmp_path: Path) -> None:
    """A convolution's weight stands in the file as it is packed when that is loaded."""
    layer = nn.Conv2d(128, 128, 3)
    x = torch.randn(1, 128, 9, 9)
    path = fusewright.aot_compile(layer.eval(), (x,), None, tmp_path / "p", options=FREEZE)
    assert path.stat().st_size < 1.2 * layer.weight.nbytes
    torch.testing.assert_close(fusewright.load(path)(x), layer(x), rtol=1e-4, atol=1e-5)


def test_no_compiler_is_loaded(model: Model, tmp_path: Path) -> None:
    path = made(model, tmp_path / "p")
    text = (
        "import sys, torch, fusewright\n"
        f"fusewright.load({str(path)!r})(torch.zeros(2, 3, 9, 9))\n"
        "print([name for name in sys.modules if name in ('llvmlite', 'fusewright.pipeline', "
        "'fusewright.aot', 'fusewright.packages.building')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_a_program_without_anything_to_freeze(tmp_path: Path) -> None:
    layer, x = nn.Linear(3, 3), torch.ones(3)
    path = fusewright.aot_compile(layer.eval(), (x,), None, tmp_path / "p", options=FREEZE)
    assert not read_package(path, b"").manifest["frozen"]
    torch.testing.assert_close(fusewright.load(path)(x), layer(x))
