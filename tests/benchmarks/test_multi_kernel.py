"""The benchmark of choices: its table, what it says of each way, and when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from benchmarks import multi_kernel
from fusewright.runtime import choices
from tests.threads import with_threads


@pytest.fixture(autouse=True)
def few_shapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", "")  # The benchmark sets it; this takes it back.
    monkeypatch.setattr(multi_kernel, "LENGTHS", (1024, 16384))
    monkeypatch.setattr(multi_kernel, "ROWS", {"cpu": (1, 3)})
    monkeypatch.setattr(multi_kernel, "KINDS", {"sum": lambda x: x.sum(-1)})
    monkeypatch.setattr(multi_kernel, "TURNS", 1)
    monkeypatch.setattr(
        multi_kernel,
        "second_process",
        lambda device, n: f"{multi_kernel.call_all(device, n)} again",
    )
    with with_threads(2):  # How many there are decides which ways there are.
        yield


def timing(*seconds: float) -> Callable[..., list[float]]:
    def time_runs(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
        return list(seconds[: len(runs)])

    return time_runs


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(choices, "time_runs", timing(2e-6, 1e-6))
    status = multi_kernel.main(list(words))
    return status, capsys.readouterr().out


def test_a_choice_that_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(multi_kernel, "time_runs", timing(2e-6, 1e-6, 1e-6))
    monkeypatch.setattr(
        multi_kernel,
        "second_process",
        lambda device, n: f"{multi_kernel.call_all(device, n)} choices timed",
    )
    table = tmp_path / "table.csv"
    status, text = run(monkeypatch, capsys, "--table", str(table))
    assert status == 1  # A table turns the cache off: the choices are timed again.
    assert "sum 3 x 16384" in text and "0.0%  split" in text
    assert "whole loses at most 100.0%" in text and "2 shapes have one way alone" in text
    assert len(table.read_text().splitlines()) == 3
    status, text = run(monkeypatch, capsys)
    assert status == 0 and "a second process: 0 choices timed" in text


def test_a_choice_that_loses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(multi_kernel, "time_runs", timing(1e-6, 2e-6, 2e-6))
    monkeypatch.setattr(multi_kernel, "second_process", lambda device, n: "0 choices timed")
    status, text = run(monkeypatch, capsys)
    assert status == 1 and "100.0%  split" in text
