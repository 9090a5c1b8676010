"""A change of the world between calls of a compiled function: never a stale result.

Every seventeenth case, which meets every kind, read, change and place; all of them run by
`python -m tests.capture.soundness`.
"""

from __future__ import annotations

from itertools import islice

import pytest

from tests.capture.soundness.cases import Case, check, chosen_cases
from tests.capture.soundness.kinds import KINDS

CASES = tuple(islice(chosen_cases(KINDS), 0, None, 17))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_changed_world_is_noticed(case: Case) -> None:
    check(case)


UNREAD = tuple(case for case in chosen_cases(KINDS) if case.is_unread)


@pytest.mark.parametrize("case", UNREAD, ids=lambda case: case.name)
def test_what_is_not_read_is_not_guarded(case: Case) -> None:
    assert check(case).captures == 1, "captured again after a change of what it does not read"
