"""A change of the world between two calls of a compiled function: never a stale result."""

from __future__ import annotations

import pytest

from tests.capture.soundness.kinds import KINDS
from tests.capture.soundness.cases import Case, check, chosen_cases

CASES = tuple(chosen_cases(KINDS))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_second_call_agrees(case: Case) -> None:
    report = check(case)
    if case.is_unread:
        assert report.captures == 1, "captured again after a change of what it does not read"
