"""Calls and training steps of the programs of `benchmarks.calls` leave nothing behind."""

from __future__ import annotations

import pytest
import torch

import fusewright
from benchmarks.call_programs import PROGRAMS
from benchmarks.calls import MODES, SIZES, _step
from tests.leftovers import leaves_nothing, repeated

QUICK = "1 kernel"

LONGEST = ("100 products", "train", "dynamic")
"""A third of the time of all cases together; 10 products are the same code."""

CASES = [
    pytest.param(name, mode, sizes, marks=() if name == QUICK else pytest.mark.thorough)
    for name in PROGRAMS
    for mode in MODES
    for sizes in SIZES
    if (name, mode, sizes) != LONGEST
]


@pytest.mark.parametrize(("name", "mode", "sizes"), CASES)
def test_calls_leave_nothing_behind(name: str, mode: str, sizes: str) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    options = {"strict": True}
    compiled = fusewright.compile(program.module, dynamic=sizes == "dynamic", options=options)
    step = _step(program, compiled, mode)
    step()
    leaves_nothing(repeated(step))
