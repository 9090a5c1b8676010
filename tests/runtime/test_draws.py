"""Dropout in compiled code draws what eager's draws, on a CPU in vectors."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import fusewright
from fusewright.runtime import draws

SIZES = [(draws.LEAST - 1,), (draws.LEAST,), (3, 0), (37, 41), (5, 7, 64)]


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bernoulli_is_torchs(
    size: tuple[int, ...], dtype: torch.dtype, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both where draws are made here, and where they are left to torch."""
    if not one_by_one:
        monkeypatch.setattr(draws, "_makes_numbers_one_by_one", lambda: False)
    x = torch.ones(size, dtype=dtype)
    results = []
    for function in (F.dropout, fusewright.compile(F.dropout, fullgraph=True)):
        torch.manual_seed(5)
        results.append((function(x, 0.3), function(x.mT if x.dim() > 1 else x), torch.rand(2)))
    for expected, result in zip(*results, strict=True):
        assert torch.equal(expected, result)
        assert expected.stride() == result.stride()


def test_a_draw_computes_nothing_of_what_gives_its_shape() -> None:
    """Neither zeros for memory that was never filled, nor a tensor whose values nobody reads."""

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x.exp()).bernoulli_(0.5) + (x * 2).bernoulli(0.25)

    explanation = fusewright.explain(drawn)(torch.ones(64, 64))
    (graph,) = explanation.graphs
    assert (graph.launches, graph.library_calls) == (1, 2)


def test_a_generator_of_the_programs_own() -> None:
    """It is asked by torch."""
    like = torch.empty(draws.LEAST, dtype=torch.bool)
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    drawn = draws.bernoulli(like, 0.5, generator=ours)
    assert torch.equal(drawn, torch.bernoulli(like, 0.5, generator=theirs))


def test_other_threads_draw_other_numbers() -> None:
    """All threads together draw the numbers of one: none is drawn twice or left out."""
    from concurrent.futures import ThreadPoolExecutor

    like = torch.empty(2000, dtype=torch.bool)
    torch.manual_seed(7)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: draws.bernoulli(like, 0.5), range(400)))
    following = torch.rand(3)
    torch.manual_seed(7)
    expected = [torch.bernoulli(like, 0.5) for _ in range(400)]
    assert {tuple(row.tolist()) for row in drawn} == {tuple(row.tolist()) for row in expected}
    assert torch.equal(following, torch.rand(3))
