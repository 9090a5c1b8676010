"""The benchmark of first calls: what of ours it tells, and what it says of processes that fail."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch

import fusewright
from benchmarks import first_calls
from benchmarks.compilers import OURS, PEER


def test_stages_are_of_forward_and_backward() -> None:
    compiled = fusewright.compile(torch.nn.Linear(3, 2))
    compiled(torch.ones(4, 3)).sum().backward()
    stages = first_calls.stages_of(compiled)
    assert {"capture", "lower", "backward lower"} <= stages.keys()
    assert all(seconds >= 0 for seconds in stages.values())


def test_ratios_leave_out_what_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_a_process(name: str, mode: str, column: str, caches: dict[str, str]) -> dict[str, Any]:
        folders.append(caches["TRITON_CACHE_DIR"])
        if name == "t5" and column == PEER:
            return {"seconds": math.nan, "failure": "no room"}
        return {"seconds": 1.0 if column == OURS else 8.0}

    folders: list[str] = []
    monkeypatch.setattr(first_calls, "in_a_process", in_a_process)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert first_calls.main(["--mode", "infer", "--models", "bert", "t5"]) == 1
    printed = capsys.readouterr().out
    assert "cold: fusewright takes 0.125 of torch.compile's time, 1 models" in printed
    assert "no room" in printed
    cold, warm, other, _, *_ = folders
    assert cold == warm
    assert cold != other
    assert first_calls.main(["--mode", "infer", "--models", "bert", "--seconds", "-1"]) == 1
    assert "left out" in capsys.readouterr().out


def test_a_process_that_fails_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **keywords: Any) -> subprocess.CompletedProcess[str]:
        assert command[0] == sys.executable
        return subprocess.CompletedProcess(command, 1, "", "no memory")

    monkeypatch.setattr(first_calls.subprocess, "run", run)
    told = first_calls.in_a_process("bert", "train", OURS, {})
    assert math.isnan(told["seconds"])
    assert told["failure"] == "fusewright: no memory"
