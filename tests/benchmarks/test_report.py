"""The comparison's means, table and verdict follow from the measurements."""

from __future__ import annotations

import math

import pytest
import torch
from rich.console import Console

from benchmarks.compare import Row, _failed
from benchmarks.measure import relative_error
from benchmarks.models import tensors_of
from benchmarks.report import summarise, table

EAGER, PEER, OURS = "eager", "torch.compile", "fusewright"


def row(model: str, **ours: object) -> Row:
    figures = {"first_call": 2.0, "call": 0.01, "launches": 8, "bytes": 100, "error": 1e-7}
    columns = {
        EAGER: {"call": 0.02, "error": 0.0},
        PEER: {"first_call": 32.0, "call": 0.04, "launches": 4, "bytes": 400, "error": 1e-7},
        OURS: {**figures, **ours},
    }
    return Row(model, "own", columns)


def test_means_are_geometric() -> None:
    summary = summarise([row("a"), row("b", first_call=8.0, call=0.04)])
    assert summary.first_call_of_peer == pytest.approx(8.0)  # 16 and 4
    assert summary.speed_of_eager == pytest.approx(1.0)  # 2 and 1/2
    assert summary.slowest_of_eager == pytest.approx(0.5)
    assert summary.speed_of_peer == pytest.approx(2.0)
    assert summary.launches_of_peer == pytest.approx(2.0)
    assert summary.bytes_of_peer == pytest.approx(0.25)
    assert summary.largest_error == pytest.approx(1e-7)


def test_what_was_not_measured_is_left_out() -> None:
    failed = row("b")
    failed.columns[PEER] = {"failure": "not available: there is no C++ compiler"}
    failed.columns[OURS] = {"failure": "RuntimeError: no"}
    summary = summarise([row("a"), failed])
    assert summary.first_call_of_peer == pytest.approx(16.0)
    assert summary.models == 2
    empty = summarise([failed])
    assert empty.speed_of_eager is None
    assert list(empty.sentences()) == []


def test_the_table_shows_figures_and_failures() -> None:
    failed = row("b")
    failed.columns[PEER] = {"failure": "not available: there is no C++ compiler"}
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table([row("a"), failed]))
    text = console.export_text()
    assert "32.00 s" in text
    assert "2.00x" in text
    assert "not available" in text


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ({}, False),
        ({"error": 2e-5}, True),
        ({"error": math.inf}, True),
        ({"failure": "Unsupported: print"}, True),
    ],
)
def test_the_verdict(ours: dict[str, object], expected: bool) -> None:
    assert _failed(row("a", **ours)) is expected


def test_relative_error_sees_shape_and_nan() -> None:
    expected = torch.tensor([3.0, 4.0])
    assert relative_error([expected], [expected]) == 0.0
    assert relative_error([expected + torch.tensor([0.0, 0.5])], [expected]) == pytest.approx(0.1)
    assert relative_error([expected[:1]], [expected]) == math.inf
    assert relative_error([], [expected]) == math.inf
    assert relative_error([expected * math.nan], [expected]) == math.inf


def test_tensors_are_found_in_nested_outputs() -> None:
    first, second, third = torch.zeros(1), torch.ones(1), torch.ones(2)
    found = tensors_of({"a": first, "b": (None, [second]), "c": third})
    assert [id(tensor) for tensor in found] == [id(first), id(second), id(third)]
