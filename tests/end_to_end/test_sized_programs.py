"""Programs compiled once and run for random sizes: a sample of `sized_programs`, which as a command
runs each in every layout, with and without gradients, for hundreds of sizes.
"""

from __future__ import annotations

import os

import pytest

from tests.end_to_end.sized_programs import LAYOUTS, PROGRAMS, complaints

EVERYTHING = os.environ.get("FUSEWRIGHT_TEST_ALL") == "1"
COUNT = 40 if EVERYTHING else 5
LAYOUT_NAMES = tuple(LAYOUTS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_for_random_sizes(name: str) -> None:
    program = PROGRAMS[name]
    place = list(PROGRAMS).index(name)
    layout = "rows" if program.writes else LAYOUT_NAMES[place % len(LAYOUTS)]
    trained = place % 2 == 1 and not program.writes
    assert not list(complaints(program, layout, trained=trained, count=COUNT))


@pytest.mark.parametrize("name", list(PROGRAMS) if EVERYTHING else list(PROGRAMS)[::6])
def test_programs_for_sizes_zero_and_one(name: str) -> None:
    assert not list(complaints(PROGRAMS[name], "rows", trained=False, count=COUNT, least=0))
