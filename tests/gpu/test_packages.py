"""Packages of CUDA programs: built on a GPU, loaded without compiler and Triton, run on the stream
of the call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import PackageRefused, WrongArgument
from fusewright.packages import container
from tests.gpu.support import CUDA, agree, needs_gpu

pytestmark = needs_gpu

SOURCE = Path(__file__).parents[2] / "src"


class Model(torch.nn.Module):
    """Kernels, a product, attention, a constant, a buffer that is written, and a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)
        self.calls = torch.nn.Buffer(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        scale = torch.tensor([0.5, 2.0], device=x.device).repeat(32)
        q, k, v = self.first(self.norm(x) * scale).view(*x.shape[:2], 3, 4, 16).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        y = torch.nn.functional.gelu(y.transpose(1, 2).reshape(x.shape) + x)
        y = torch.cond(y.sum() > 0, lambda y: y.softmax(-1), lambda y: y.cumsum(-1), (y,))
        return {"y": y, "calls": self.calls * 1, "rows": x.shape[0]}


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().to(CUDA).eval()


@pytest.fixture(scope="module")
def path(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = torch.export.Dim("rows", max=64)
    x = torch.randn(4, 32, 64, device=CUDA)
    path = tmp_path_factory.mktemp("packages") / "model.fwp"
    return fusewright.aot_compile(model, (x,), None, path, dynamic_shapes={"x": {0: rows}})


def test_results_are_eagers(model: Model, path: Path) -> None:
    """Also of memory that begins anywhere, for which there are other kernels."""
    package = fusewright.load(path)
    for step, rows in enumerate((4, 2, 33)):
        x = torch.randn(rows, 32, 64, device=CUDA)
        if rows == 2:
            x = torch.randn(x.numel() + 1, device=CUDA)[1:].view(x.shape)
        with torch.no_grad():
            model.calls.fill_(step)
            expected = model(x)
        found = package(x)
        assert found.pop("rows") == expected.pop("rows") == rows
        agree(found, expected, factor=10)


LOADED = """
import json, sys, time, torch, fusewright
torch.zeros(1, device="cuda")
began = time.perf_counter()
package = fusewright.load(sys.argv[1])
seconds = time.perf_counter() - began
x = torch.ones(3, 32, 64, device="cuda")
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    torch.cuda._sleep(200_000_000)  # kernels on another stream would be done before it
    x *= 2
    y = package(x)["y"]
stream.synchronize()
names = [name for name in sys.modules if name.split(".")[0] in ("llvmlite", "triton")]
names += [name for name in sys.modules if name.split(".")[:2] in [["fusewright", stage] for stage in
    ("aot", "capture", "lower", "schedule", "kernels", "wrapper", "pipeline", "compiler", "fake")]]
print(json.dumps([names, y.double().sum().item(), seconds]))
"""


def test_it_is_loaded_without_the_compiler(model: Model, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names, total, seconds = json.loads(done.stdout.splitlines()[-1])
    print(f"loaded in {1e3 * seconds:.0f} ms")
    with torch.no_grad():
        expected = model(torch.full((3, 32, 64), 2.0, device=CUDA))["y"].double().sum().item()
    assert names == [] and total == pytest.approx(expected, rel=1e-4)


def test_weights_are_moved_or_shared(model: Model, path: Path) -> None:
    own, shared = fusewright.load(path), fusewright.load(path, weights=model)
    assert {weight.device for weight in own.weights.values()} == {CUDA}
    assert own.weights["first.weight"].data_ptr() != model.first.weight.data_ptr()
    assert shared.weights["first.weight"].data_ptr() == model.first.weight.data_ptr()


def test_other_devices_are_refused(path: Path, tmp_path: Path) -> None:
    package = fusewright.load(path)
    with pytest.raises(WrongArgument, match=r"argument x has to be .* on cuda:0, not .* on cpu"):
        package(torch.ones(3, 32, 64))
    file = container.read_package(path, b"")
    for change, words in (
        ({"gpus": [35]}, "it was made for cuda:0, of sm_35, and cuda:0 is of sm_"),
        ({"devices": ["cuda:99"]}, "it was made for cuda:99, of sm_.*, and there is no such GPU"),
    ):
        manifest = json.loads(json.dumps(dict(file.manifest))) | change
        sections = [
            (row["name"], bytes(file.section(row["name"]))) for row in manifest.pop("sections")
        ]
        container.write_package(tmp_path / "p", manifest, sections, b"")
        with pytest.raises(PackageRefused, match=words):
            fusewright.load(tmp_path / "p")
