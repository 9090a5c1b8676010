"""Every configuration that tuning tries of a Triton kernel computes what its loops say.

Of the cases, one in `EVERY` is run in each configuration: `FUSEWRIGHT_TEST_CONFIGURATIONS=1` runs
all of them, some minutes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.kernels.triton.interpreter import run_program

from fusewright.ir.canonical import canonical_group, canonical_names  # isort: skip
from fusewright.ir.group import Group  # isort: skip
from fusewright.kernels.triton import Configuration, candidates, configuration_of  # isort: skip
from fusewright.kernels.triton.axis_form import CannotRecompute  # isort: skip
from fusewright.kernels.triton.configurations import MOST_TRIED, configurations  # isort: skip
from tests.golden import Case  # isort: skip
from tests.kernels.triton import agreement  # isort: skip
from tests.kernels.triton.launching import scheduled  # isort: skip

EVERY = int(os.environ.get("FUSEWRIGHT_TEST_CONFIGURATIONS", "8"))

CASES = agreement.RUN_CASES


def tried(group: Group) -> list[Configuration]:
    return list(configurations(group))


def groups(text: str) -> list[Group]:
    """The groups of a program, under canonical names."""
    steps = [step for step in scheduled(text).works if isinstance(step, Group)]
    return [canonical_group(step, canonical_names(step)) for step in steps]


def case(word: str) -> Case:
    return next(case for case in agreement.CASES if word in case.name)


def test_the_rules_choice_comes_first_and_none_comes_twice() -> None:
    for case in agreement.CASES:
        for group in groups(case.input):
            several = tried(group)
            assert several[0] == configuration_of(group)
            names = {configuration.words for configuration in several}
            assert len(names) == len(several) <= MOST_TRIED


def test_rows_are_held_and_walked_over() -> None:
    (group,) = groups(case("softmax").input)
    assert {configuration.tiling.persistent for configuration in tried(group)} == {True, False}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (2048, "1 x 2048, 4 warps"),
        (4096, "1 x 2048, 4 warps"),
        (3000, "1 x 1024, 4 warps"),
        (512, "2 x 512, 4 warps"),
    ],
)
def test_what_a_row_reads_of_its_own_is_loaded_for_many_elements(columns: int, words: str) -> None:
    text = f"""program scaled(x: f32[4096, {columns}], scale: f32[4096])
  y: f32[4096, {columns}] = pointwise [i0<4096, i1<{columns}]
    t0 = load x[{columns}*i0 + i1]
    t1 = load scale[i0]
    t2 = mul t0, t1
    yield t2
  return y
"""
    (group,) = groups(text)
    assert configuration_of(group).words.startswith(words)


@pytest.mark.parametrize(
    ("word", "is_float"), [("product with bias", True), ("batch in a half type", False)]
)
def test_factors_are_rounded_where_the_program_allows_it(word: str, is_float: bool) -> None:
    (group,) = groups(case(word).input)
    names = canonical_names(group)
    tensors = [argument.name for argument in names.arguments]
    for rounds in (False, True):
        sizes = [canonical for canonical, _ in names.sizes]
        first, *others = candidates(group, tensors, sizes, rounds)
        assert len(others) >= 5
        assert 'input_precision="ieee"' in first.source and "TF32" not in first.name
        for candidate in others:
            assert ('"tf32"' in candidate.source) == (rounds and is_float)
            assert ("TF32" in candidate.name) == (rounds and is_float)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if number in (1, 6, 11) else pytest.mark.thorough)
        for number in range(1, MOST_TRIED)
    ],
)
def test_results(number: int, tmp_path: Path) -> None:
    for case in CASES[number % EVERY :: EVERY]:
        check(case, number, tmp_path)


def check(case: Case, number: int, folder: Path) -> None:
    """Run a program, each of its groups in the configuration of this number, if it has as many."""

    def configure(group: Group) -> Configuration:
        several = tried(group)
        return several[min(number, len(several) - 1)]

    with suppress(CannotRecompute):  # Tuning leaves those out.
        agreement.check_case(partial(run_program, configure=configure), case, folder, None)
