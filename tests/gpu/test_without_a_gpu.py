"""Graphs of CUDA tensors become machine code where there is no GPU: torch is told that there is
one, and traces on fakes. Other models, types and kinds of attention: `tests.gpu.pretended.graphs`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "pretended" / "device.cpp"
TORCH = Path(torch.__file__).parent
FLASH = "1"
"""Torch's number of it; 2 is the memory-efficient kind, 3 cudnn's."""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for GPUs"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiles a pretended device with g++"),
]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that pretends."""
    library = tmp_path_factory.mktemp("pretended") / "device.so"
    lib = TORCH / "lib"
    subprocess.run(
        [
            *("g++", "-O0", "-shared", "-fPIC", "-std=c++20", f"-I{TORCH / 'include'}"),
            *(str(SOURCE), "-o", str(library), f"-L{lib}", f"-Wl,-rpath,{lib}"),
            *("-Wl,--no-as-needed", "-lc10", "-ltorch_cpu"),
        ],
        check=True,
    )
    return library


def run_pretending(
    device: Path, folder: Path, module: str, *arguments: str, attention: str = "0"
) -> str:
    """What a module of `pretended` prints; it has to end well."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(device),
        "PRETENDED_ATTENTION": attention,
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    done = subprocess.run(
        [sys.executable, "-m", f"tests.gpu.pretended.{module}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def compile_graphs(device: Path, folder: Path, *arguments: str, attention: str = "0") -> str:
    """What `graphs` prints."""
    printed = run_pretending(device, folder, "graphs", *arguments, attention=attention)
    assert printed.rstrip().endswith(" kernels, 0 failures")
    return printed


def test_the_current_gpu(device: Path, tmp_path: Path) -> None:
    """`cuda` is the GPU that is current when the program asks, and that is guarded."""
    assert run_pretending(device, tmp_path, "current_device").split() == ["0", "wrong"]


def test_dropout(device: Path, tmp_path: Path) -> None:
    """Kernels draw, and nothing but seeds is kept for backward."""
    assert run_pretending(device, tmp_path, "dropout").rstrip().endswith("\n0 wrong")


def test_plans_are_kept(device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as are made of graphs on one GPU, and for no other."""
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSEWRIGHT_GRAPH_CACHE", raising=False)
    assert run_pretending(device, tmp_path, "kept_plans").rstrip().endswith(" kept, 0 wrong")


def test_steps_of_optimizers(device: Path, tmp_path: Path) -> None:
    """Ten launches at most, and no copies of counters."""
    assert run_pretending(device, tmp_path, "optimizers").rstrip().endswith("\n0 wrong")


def test_geometry(device: Path, tmp_path: Path) -> None:
    """Results have eager's types and layouts, also where torch's meta kernels say otherwise."""
    assert run_pretending(device, tmp_path, "geometry").split() == ["0", "wrong"]


def test_small_programs(device: Path, tmp_path: Path) -> None:
    compile_graphs(device, tmp_path, "--train")


def test_attention(device: Path, tmp_path: Path) -> None:
    """Flash attention and its gradient are calls of the library."""
    printed = compile_graphs(device, tmp_path, "--half", "--train", "ViTModel", attention=FLASH)
    for end in ("attention.default", "attention_backward.default"):
        assert f"aten._scaled_dot_product_flash_{end}" in printed


def test_attention_under_a_full_mask(device: Path, tmp_path: Path) -> None:
    """As without the mask, and no scores are kept."""
    printed = run_pretending(device, tmp_path, "attention", attention=FLASH)
    assert printed.rstrip().endswith("\n0 wrong")


def test_convolutions_and_batch_norms(device: Path, tmp_path: Path) -> None:
    """cudnn's batch norm is taken apart."""
    printed = compile_graphs(device, tmp_path, "--train", "--autocast", "ResNetModel")
    assert "aten.convolution.default" in printed
    assert "batch_norm" not in printed
