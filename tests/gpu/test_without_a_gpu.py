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


def run_pretending(device: Path, folder: Path, *commands: str) -> dict[str, str]:
    """What modules of `pretended` print, each by its command; all run in one process, and all have
    to end well.
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": str(device),
        "FUSEWRIGHT_CACHE_DIR": str(folder / "cache"),
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    environment.pop("FUSEWRIGHT_GRAPH_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.pretended", *commands],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    printed: dict[str, str] = {}
    rest, wrong = done.stdout, []
    for command in commands:
        printed[command], found, rest = rest.partition(f"\n== {command}: ")
        status, _, rest = rest.partition("\n")
        if not found or status != "0":
            wrong.append(f"{command}: {status or 'does not end'}\n{printed[command][-6000:]}")
    assert not wrong and done.returncode == 0, "\n\n".join([*wrong, done.stderr[-3000:]])
    return printed


def test_programs(device: Path, tmp_path: Path) -> None:
    """Graphs on a GPU become machine code, and their plans are kept, for no other GPU; `cuda` is
    the GPU that is current when the program asks, and that is guarded; results have eager's types
    and layouts, also where torch's meta kernels say otherwise.
    """
    printed = run_pretending(device, tmp_path, "programs", "current_device", "geometry")
    assert printed["programs"].endswith(" kernels, 0 failures")
    assert printed["current_device"].split() == ["0", "wrong"]
    assert printed["geometry"].split() == ["0", "wrong"]


def test_models(device: Path, tmp_path: Path) -> None:
    """Flash attention and its gradient are calls of the library, under a full mask as without one,
    where no scores are kept; cudnn's batch norm is taken apart; kernels of dropout draw, and
    nothing but seeds is kept for backward; an optimiser's step takes ten launches at most, and no
    copies of counters.
    """
    flash = f"{FLASH} graphs --half --train ViTModel"
    masked = f"{FLASH} attention"
    convolutions = "graphs --train --autocast ResNetModel"
    printed = run_pretending(device, tmp_path, flash, masked, convolutions, "dropout", "optimizers")
    for end in ("attention.default", "attention_backward.default"):
        assert f"aten._scaled_dot_product_flash_{end}" in printed[flash]
    assert "aten.convolution.default" in printed[convolutions]
    assert "batch_norm" not in printed[convolutions]
    for command in (flash, convolutions):
        assert printed[command].endswith(" kernels, 0 failures")
    for command in (masked, "dropout", "optimizers"):
        assert printed[command].endswith("\n0 wrong")
