"""The debug printer tells of a program's own Triton kernels, with what they read and write."""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import pytest
import torch

import fusewright
from fusewright.config import TARGETS
from tests.user_kernels.programs import PROGRAMS

assert interpreter


@pytest.mark.parametrize("target", TARGETS)
def test_a_launch_is_told_of(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, program = next(iter(PROGRAMS.items()))
    options = {"strict": True, "target": target, "debug_printer": "print"}
    compiled = fusewright.compile(program, options=options)
    x = torch.randn(40)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), program(x))
    before, after = (capsys.readouterr().out.partition("before add\n")[2]).split("after add\n")
    assert "programs.py:" in before and "add[blocks(x.numel())]" in before
    assert "float32, 40, on cpu" in before and "float32, 40, on cpu" in after, name
