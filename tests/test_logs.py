"""FUSEWRIGHT_LOG prints channels; names that are not known are told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fusewright
from fusewright import logs

PROGRAM = """
import torch, fusewright
with torch.no_grad():
    fusewright.compile(lambda x: torch.relu(x + 1), options={"strict": True})(torch.ones(3))
"""


def run(setting: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FUSEWRIGHT_LOG": setting}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert done.stdout == ""
    return done.stderr


def test_stages_are_printed() -> None:
    text = run("graphs, loops, kernels")
    assert "call_function[target=torch.relu]" in text and "2 operators, 1 inputs" in text
    assert "[fusewright.loops] program graph(" in text and "maximum" in text
    assert "[fusewright.kernels] kernel cpu_add_relu" in text
    assert "[fusewright.aten]" not in text


def test_silence_is_the_default() -> None:
    assert run("") == ""


def test_a_wrong_name_is_told_with_the_nearest() -> None:
    with pytest.warns(RuntimeWarning, match="'kernel' is not known; did you mean 'kernels'"):
        logs.print_channels("kernel")


def test_a_wrong_name_is_told_at_the_line_that_imports_or_compiles(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import fusewright\n\ncompiled = fusewright.compile(lambda x: x)\n")
    environment = {
        **os.environ,
        "FUSEWRIGHT_LOG": "kernel",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith(f"{program}:3: RuntimeWarning: ")


def test_texts_are_made_only_where_somebody_listens(caplog: pytest.LogCaptureFixture) -> None:
    logs.log_text("loops", lambda: pytest.fail("nobody listens"))
    with caplog.at_level(logging.DEBUG, "fusewright.loops"):
        logs.log_text("loops", lambda: "the loops")
    assert caplog.messages == ["the loops"]


def test_a_warning_points_to_the_line_of_the_program() -> None:
    with pytest.warns(RuntimeWarning, match="fusewright: something") as caught:
        logs.warn("something")
    assert caught[0].filename == __file__
    compiled = fusewright.compile(lambda x, n: x * n, backend="eager", recompile_limit=1)
    compiled(torch.ones(2), 1)
    with pytest.warns(RuntimeWarning, match="recompile_limit") as caught:
        compiled(torch.ones(2), 2)
    assert caught[0].filename == __file__
