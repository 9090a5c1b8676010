"""New values of inputs are written in the inputs' own memory where nothing needs the old ones."""

from __future__ import annotations

import pytest

from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.program import CallOperator
from fusewright.ir.text import print_program
from fusewright.schedule import schedule
from fusewright.schedule.in_place import written_in_place

STEP = """\
program step(x: f32[8], g: f32[8])
  y: f32[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = load g[i0]
    t2 = add t0, t1
    yield t2
{more}  mutation y of x
  return y{results}
"""

READ_BEFORE = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = mul t0, 2.0
    yield t1
"""

READ_BACKWARDS = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load x[7 - i0]
    yield t0
"""

LIBRARY_CALL = "  z: f32[8] = extern aten.sort.default(g)\n"

CHECKED_INDEX = """\
  z: f32[8] = pointwise [i0<8]
    t0 = load g[i0]
    t1 = cast t0: i64
    k0 = indirect t1 below 8 check
    t2 = load g[k0]
    yield t2
"""


def in_place(more: str = "", results: str = "") -> dict[str, str]:
    program = parse_program(STEP.format(more=more, results=results))
    assert "mutation y of x" in print_program(program)
    steps = schedule(program, CompileContext()).steps
    return {written: read for step in steps for written, read in step.takes_over}


def test_a_step() -> None:
    assert in_place() == {"y": "x"}


def test_the_old_value_is_read_at_the_same_place() -> None:
    assert in_place(READ_BEFORE, ", z") == {"y": "x"}


def test_the_old_value_is_needed_elsewhere() -> None:
    assert in_place(READ_BACKWARDS, ", z") == {}


@pytest.mark.parametrize("more", [LIBRARY_CALL, CHECKED_INDEX], ids=["call", "index"])
def test_something_may_raise_afterwards(more: str) -> None:
    assert in_place(more, ", z") == {}


def test_the_old_value_is_a_result() -> None:
    assert in_place("", ", x") == {}


CACHE = """\
program decode(key: f32[4, 8], {places}, keys: f32[4, 16, 8]{inputs})
{before}  stored: f32[4, 16, 8] = scatter {mode} [i0<4, i1<8] into keys
    t0 = load place[{place}]
    k0 = indirect t0 below 16 check
    t1 = load {value}
    yield t1 at 128*i0 + 8*k0 + i1
  score: f32[4, 16, 8] = extern aten.sort.default(stored)
  mutation stored of keys
  return stored, score{results}
"""

SCALED_BEFORE = """\
  scaled: f32[4, 16, 8] = pointwise [i0<4, i1<16, i2<8]
    t0 = load keys[128*i0 + 8*i1 + i2]
    t1 = mul t0, 2.0
    yield t1
"""


def stored_in_place(before: str = "", inputs: str = "", results: str = "", **parts: str) -> bool:
    parts = {
        "mode": "store",
        "places": "place: i64[4]",
        "place": "0",
        "value": "key[8*i0 + i1]",
    } | parts
    text = CACHE.format(before=before, inputs=inputs, results=results, **parts)
    steps = schedule(parse_program(text), CompileContext()).steps
    return any(("stored", "keys") in step.takes_over for step in steps)


def test_a_row_is_stored_into_a_cache_before_a_library_call() -> None:
    """A call that raises behind it is run again, and stores the same to the same place."""
    assert stored_in_place()


def test_rows_are_stored_at_several_places() -> None:
    """All are checked before the first one is stored."""
    assert stored_in_place(place="i0")


def test_what_raises_ahead_of_the_store_raises_first() -> None:
    before = "  other: f32[8, 8] = extern aten.cholesky.default(matrix) effect\n"
    assert stored_in_place(before, ", matrix: f32[8, 8]", ", other")


@pytest.mark.parametrize(
    "parts",
    [
        {"mode": "add"},
        {"places": "place: i64[4, 8]", "place": "8*i0 + i1"},
        {"value": "keys[128*i0 + i1]"},
        {"before": SCALED_BEFORE, "results": ", scaled"},
    ],
    ids=["sum", "a place for each element", "old value stored", "old value read"],
)
def test_a_store_that_must_not_be_repeated_waits(parts: dict[str, str]) -> None:
    """Done twice it would give something else, or where it raises it would have stored a part."""
    assert not stored_in_place(**parts)


TWO_STORES = """\
program decode(key: f32[4, 8], place: i64[2], keys: f32[4, 16, 8], matrix: f32[8, 8])
  first: f32[4, 16, 8] = scatter {modes[0]} [i0<4, i1<8] into keys
    t0 = load place[0]
    k0 = indirect t0 below 16 check
    t1 = load key[8*i0 + i1]
    yield t1 at 128*i0 + 8*k0 + i1
{between}  second: f32[4, 16, 8] = scatter {modes[1]} [i0<4, i1<8] into first
    t0 = load place[1]
    k0 = indirect t0 below 16 check
    t1 = load key[8*i0 + i1]
    yield t1 at 128*i0 + 8*k0 + i1
{behind}  mutation second of keys
  return second{results}
"""

COPIED = """\
  base: f32[4, 16, 8] = pointwise [i0<4, i1<16, i2<8]
    t0 = load first[128*i0 + 8*i1 + i2]
    yield t0
"""


SORTED_BEHIND = "  score: f32[4, 16, 8] = extern aten.sort.default(second)\n"


def stores_in_place(
    between: str = "",
    results: str = "",
    modes: tuple[str, str] = ("store", "store"),
    behind: str = SORTED_BEHIND,
) -> bool:
    results += ", score" if behind else ""
    text = TWO_STORES.format(between=between, results=results, modes=modes, behind=behind)
    steps = schedule(parse_program(text), CompileContext()).steps
    return any(("first", "keys") in step.takes_over for step in steps)


def test_two_stores_follow_each_other() -> None:
    assert stores_in_place()


def test_what_raises_between_two_stores_raises_there() -> None:
    between = "  other: f32[8, 8] = extern aten.cholesky.default(matrix) effect\n"
    assert stores_in_place(between, ", other")


@pytest.mark.parametrize(
    ("modes", "behind", "expected"),
    [
        (("store", "add"), "", True),
        (("max", "min"), SORTED_BEHIND, True),
        (("store", "add"), SORTED_BEHIND, False),
        (("add", "store"), "", False),
    ],
)
def test_sums_wait_for_what_may_raise(modes: tuple[str, str], behind: str, expected: bool) -> None:
    """What a second one checks may raise, too; the least and the largest can be found again."""
    assert stores_in_place(modes=modes, behind=behind) is expected


def test_a_cache_that_is_read_between_two_stores() -> None:
    """A second run would read what the second store of the first run stored."""
    between = "  other: f32[4, 16, 1] = extern aten.bmm.default(first, view(key, f32[4, 8, 1]))\n"
    text = TWO_STORES.format(
        between=between + COPIED,
        results=", other, score",
        modes=("store", "store"),
        behind=SORTED_BEHIND,
    )
    text = text.replace("into first", "into base")
    steps = schedule(parse_program(text), CompileContext()).steps
    assert not any("keys" in pair for step in steps for pair in step.takes_over)


def test_a_store_waits_for_the_one_behind_it() -> None:
    """What raises between two stores is done behind both: then the second one has to wait, and the
    first one with it, whose memory the second one takes over.
    """
    between = "  other: f32[8, 8] = extern aten.cholesky.default(matrix) effect\n"
    text = TWO_STORES.format(
        between=between, results=", other", modes=("store", "store"), behind=""
    )
    scheduled = schedule(parse_program(text), CompileContext())
    first, library_call, second, *others = scheduled.works
    assert isinstance(library_call, CallOperator)
    assert written_in_place(scheduled.program, (first, library_call, second, *others)) == {
        "first": "keys",
        "second": "first",
    }
    assert written_in_place(scheduled.program, (first, second, library_call, *others)) == {}
