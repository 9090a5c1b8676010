"""A few programs of each kind, of fixed seeds: the fuzzer itself runs as `fusewright fuzz`."""

from __future__ import annotations

import pytest
import torch

from fusewright.fuzz.campaign import generate
from fusewright.fuzz.checking import check
from fusewright.fuzz.tensors import _hangs_on_order

# Of loop programs there are some in test_loops.py.
SEEDS = {"tensors": range(300, 360), "python": range(340, 352), "modules": range(300, 308)}
"""About five seconds each."""

GRAVE = {"crash", "wrong_value", "wrong_side_effect", "extra_exception"}
"""What no program may show; which programs a seed tells hangs on what torch's version takes."""


def batches() -> list[tuple[str, range]]:
    """The seeds of each kind in four parts."""
    return [
        (kind, seeds[start : start + len(seeds) // 4])
        for kind, seeds in SEEDS.items()
        for start in range(0, len(seeds), len(seeds) // 4)
    ]


@pytest.mark.parametrize(("kind", "seeds"), batches(), ids=str)
def test_programs_are_eager(kind: str, seeds: range) -> None:
    outcomes = []
    for seed in seeds:
        verdict = check(generate(kind, seed))
        outcomes.append(verdict.outcome)
        grave = [str(finding) for finding in verdict.findings if finding.kind in GRAVE]
        assert not grave, f"fusewright fuzz --kind {kind} --seed {seed} --count 1"
    assert "right" in outcomes


def test_writes_whose_result_hangs_on_the_order_of_elements_are_left_out() -> None:
    x = torch.zeros(4, 4)
    assert _hangs_on_order([x, x.diagonal()])
    assert _hangs_on_order([x.unfold(0, 2, 1)])
    assert not _hangs_on_order([x, x, torch.zeros(4)])
    assert not _hangs_on_order([x[:2].t()])
