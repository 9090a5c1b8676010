"""What a call costs: the programs are what they are called, and every statement is in one part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from benchmarks.call_parts import PARTS, Ledger, parts_of_a_call, timed
from benchmarks.call_programs import PROGRAMS
from benchmarks.calls import main
from fusewright.runtime.loader import load_module

MODULE = """
import torch
from fusewright.runtime import generated as runtime
empty_strided = runtime.allocator()
cpu = torch.device("cpu")
torch_mm = torch.mm

def call(inputs):
    (x, y) = inputs
    inputs.clear()
    a = empty_strided((2, 2), (2, 1), dtype=torch.float32, device=cpu)
    torch_mm(runtime.reinterpret(x, (2, 3), (3, 1), 0), y, out=a)
    b = torch.as_strided(a, (4,), (1,), 0); del a
    return (runtime.reinterpret(b, (2, 2), (1, 2), 0),)
"""


def test_a_timed_module_gives_the_same_results() -> None:
    x, y = torch.randn(6), torch.randn(3, 2)
    ledger = Ledger()
    (found,) = load_module(timed(MODULE), {"ledger": ledger}).call([x, y])
    torch.testing.assert_close(found, (x.view(2, 3) @ y).t())
    assert ledger.statements == {
        "arguments": 2, "memory": 2, "views": 3, "library calls": 1, "return": 1
    }  # fmt: skip
    assert all(nanoseconds > 0 for nanoseconds in ledger.spent.values())


def test_statements_of_no_known_part_are_refused() -> None:
    with pytest.raises(ValueError, match="no part of a call: while"):
        timed("def call(inputs):\n    while True:\n        pass\n")


def test_parts_are_those_of_the_modules_compiled_meanwhile() -> None:
    x = torch.randn(3, 5)
    parts = parts_of_a_call(lambda: _call_of(x), rounds=5)
    assert list(parts) == list(PARTS)
    assert parts["launches"] > 0 and parts["memory"] > 0
    assert parts["library calls"] == 0


def _call_of(x: torch.Tensor) -> Any:
    options = {"strict": True, "target": "python"}
    return fusewright.compile(lambda: torch.exp(x) * 2, options=options)


@pytest.mark.parametrize(
    ("name", "launches", "calls"), [("10 kernels", 10, 0), ("10 products", 10, 0)]
)
def test_programs_have_as_many_kernels_as_they_say(name: str, launches: int, calls: int) -> None:
    program = PROGRAMS[name]()
    with torch.no_grad():
        compiled = fusewright.compile(program.module, options={"strict": True})
        torch.testing.assert_close(compiled(*program.inputs), program.module(*program.inputs))
    record = fusewright.api.compilations(compiled)[0].record
    assert record is not None
    assert (len(record.launches), len(record.extern_calls)) == (launches, calls)


def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calls.json"
    assert main(["1 kernel", "--sizes", "static", "--seconds", "0.01", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "1 kernel" in shown and "launches" in shown
    rows = json.loads(file.read_text())["rows"]
    assert [(row["mode"], row["launches"]) for row in rows] == [("inference", 1), ("train", 2)]
    assert all(row["times"]["eager"] > 0 and row["times"]["fusewright"] > 0 for row in rows)
