"""The programs of the other tables with a graph break before each of their statements: modes,
state and gradients go from one graph to the next as they do within one.

One in `EVERY` breaks within statements, too: with `FUSEWRIGHT_TEST_BREAKS=1` all do.
"""

from __future__ import annotations

import os

import pytest

from fusewright import api
from fusewright.events import GraphBreak
from tests.capture import (
    test_torch_library,
    test_torch_modes,
    test_torch_modules,
    test_torch_programs,
    test_torch_state,
)
from tests.capture.breaking import with_breaks
from tests.capture.torch_cases import Case, assert_agree, observe
from tests.programs.runners import breaking_after

MODULES = (
    test_torch_modes,
    test_torch_state,
    test_torch_library,
    test_torch_modules,
    test_torch_programs,
)
EVERY_CASE = [case for module in MODULES for case in module.cases.cases]
CASES = [case for case in EVERY_CASE if not case.raises]
EVERY = int(os.environ.get("FUSEWRIGHT_TEST_BREAKS", "4"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_program_with_breaks(case: Case) -> None:
    expected = observe(case.function, case.make)
    compiled = api.compile(with_breaks(case.function), backend="eager")
    for _ in range(2):
        assert_agree(observe(compiled, case.make), expected)
    asked = [event.reason for event in compiled.compiler.events if isinstance(event, GraphBreak)]
    assert "user-break" in asked


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", EVERY_CASE[::EVERY], ids=lambda case: case.function.__name__)
def test_program_that_breaks_within_statements(case: Case) -> None:
    expected = observe(case.function, case.make)
    with breaking_after(3):
        compiled = api.compile(case.function, backend="eager", recompile_limit=1000)
        for _ in range(2):
            assert_agree(observe(compiled, case.make), expected)
