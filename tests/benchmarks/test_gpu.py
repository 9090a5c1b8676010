"""What the benchmark on a GPU counts as wrong, and what it says of models that it leaves out."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import pytest
import torch

import fusewright
from benchmarks import gpu
from benchmarks.compilers import EAGER, OURS


def test_the_relative_error_is_of_all_tensors_together() -> None:
    exact = [torch.tensor([3.0], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)]
    assert gpu.relative_error([torch.tensor([3.0]), torch.tensor([4.0])], exact) == 0
    assert gpu.relative_error([torch.tensor([3.5]), torch.tensor([4.0])], exact) == 0.1
    assert gpu.relative_error([torch.tensor([math.nan]), torch.tensor([4.0])], exact) == math.inf
    assert gpu.relative_error(exact[:1], exact) == math.inf


def test_models_beyond_the_time_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def measure(name: str, mode: str, columns: Any, compile_mode: str) -> list[gpu.Measured]:
        measured.append(name)
        return [gpu.Measured(column, call=1.0, error=1e-4) for column in (EAGER, OURS)]

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert gpu.main(["--models", "bert", "t5"]) == 0
    assert measured == ["bert", "t5"]
    assert gpu.main(["--models", "bert", "--seconds", "-1"]) == 1
    assert measured == ["bert", "t5"]
    assert "left out after -1 s" in capsys.readouterr().out


def test_what_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process calls `only_compile` for a model, a mode and a compiler."""
    compiled: list[tuple[str, ...]] = []

    def run(command: list[str], **keywords: Any) -> None:
        python, option, program, *choice = command
        assert (python, option) == (sys.executable, "-c")
        monkeypatch.setattr(sys, "argv", ["-c", *choice])
        exec(program, {})

    monkeypatch.setattr(gpu, "only_compile", lambda *choice: compiled.append(choice))
    monkeypatch.setattr(gpu.subprocess, "run", run)
    options = argparse.Namespace(
        models=["bert", "t5"], columns=[EAGER, OURS], compile_mode="max-autotune", ahead=1
    )
    gpu.compile_ahead(["infer"], options)
    assert compiled == [(name, "infer", OURS, "max-autotune") for name in ("bert", "t5")]


def test_the_bytes_that_kernels_move_are_of_forward_and_backward() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    compiled = fusewright.compile(module)
    with torch.no_grad():
        compiled(torch.ones(16, 8))
    inference = gpu.bytes_of_kernels(compiled)
    assert sum(inference.values()) >= 2 * 4 * 16 * 8
    compiled(torch.ones(16, 8)).sum().backward()
    assert sum(gpu.bytes_of_kernels(compiled).values()) > 2 * sum(inference.values())
    assert gpu.bytes_of_kernels(module) == {}


def test_a_row_has_traffic_only_where_it_is_known() -> None:
    ours = gpu.Measured(OURS, call=1.0, error=1e-4, moved=300.0, share=0.75)
    lines = list(gpu.row_of("bert", [gpu.Measured(EAGER, call=2.0, error=1e-4), ours]))
    assert lines[1].split()[-3:] == ["300", "0.75", "1.00e-04"]
    assert len({len(line) for line in (gpu.HEAD, *lines)}) == 1
    assert "0.75" not in lines[0]
