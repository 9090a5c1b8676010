"""Generated Triton kernels of every kind compute on a real GPU what they should."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kernels.triton.compiling import run_module


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_every_kind_of_kernel(tmp_path: Path) -> None:
    """In a process of its own: here, Triton may be set to interpret."""
    done = run_module(
        "pytest", "-q", "tests/kernels/triton/on_gpu.py", cache=tmp_path, seconds=1100
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout.splitlines()[-1]
