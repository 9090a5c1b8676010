"""An index that is out of range on a GPU, in a process of its own: CUDA gives up all of a process's
memory on the GPU with the first assertion that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fusewright
from tests.gpu.support import CUDA, agree, needs_gpu

pytestmark = needs_gpu

PROGRAM = """\
import sys
import torch
import fusewright


def picks(x, index):
    return torch.exp(x[index] + 1)


compiled = fusewright.compile(picks, options={"strict": True})
x = torch.ones(5, 4, device="cuda")
compiled(x, torch.tensor([0, 4], device="cuda"))
torch.cuda.synchronize()
print("right indices", flush=True)
try:
    compiled(x, torch.tensor([0, int(sys.argv[1])], device="cuda"))
    torch.cuda.synchronize()
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit(3)
"""


def run(program: Path, index: int, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), str(index)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("index", [5, -6])
def test_an_assertion_in_a_child(index: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    x = torch.ones(5, 4, device=CUDA)
    compiled = fusewright.compile(lambda x: torch.tanh(x) + 1)
    expected = compiled(x)

    child = run(program, index, FUSEWRIGHT_DEBUG_PRINTER="kernel_names")
    assert child.returncode == 3, child.stdout + child.stderr
    assert "right indices" in child.stdout
    assert "device-side assert" in child.stdout.partition("right indices")[2]
    launches = child.stdout + child.stderr
    assert "an index is out of range for size 5" in launches
    last = launches[launches.rindex("launch triton_") :].splitlines()
    assert last[1].strip() == f"{program}:7  return torch.exp(x[index] + 1)", "the last one failed"

    agree(compiled(x), expected)
    torch.cuda.synchronize()
    assert run(program, 3).returncode == 0, "the next process has the GPU as it was"
