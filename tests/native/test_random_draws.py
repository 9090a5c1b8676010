"""Draws in vectors are torch's own, and leave the generator as torch's do."""

from __future__ import annotations

import pytest
import torch

from fusewright.native import draw_bernoulli
from fusewright.runtime.draws import _makes_numbers_one_by_one

pytestmark = pytest.mark.skipif(
    not _makes_numbers_one_by_one(), reason="torch draws by MKL on this processor"
)


@pytest.mark.parametrize("count", [0, 1, 2, 311, 312, 313, 623, 624, 625, 4097])
@pytest.mark.parametrize("before", [0, 1, 2, 311, 623, 624, 625])
def test_draws_are_torchs(count: int, before: int) -> None:
    """Whatever was drawn before, an odd number of numbers too."""
    for probability in (0.0, 1e-30, 0.1, 0.5, 1 - 2**-53, 1.0):
        ours, theirs = torch.Generator().manual_seed(before), torch.Generator().manual_seed(before)
        for generator in (ours, theirs):
            torch.empty(before, dtype=torch.int32).random_(generator=generator)
        expected = torch.empty(count, dtype=torch.bool).bernoulli_(probability, generator=theirs)
        memory = torch.full((count + 128,), 7, dtype=torch.uint8)
        draw_bernoulli(ours, memory, count, probability)
        assert torch.equal(memory[:count], expected.to(torch.uint8))
        assert bool((memory[count:] == 7).all())
        assert torch.equal(ours.get_state(), theirs.get_state())


def test_normal_numbers_drawn_in_pairs_are_kept() -> None:
    """The second of a pair waits in the generator's state for the next call."""
    ours, theirs = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for generator in (ours, theirs):
        torch.randn(1, generator=generator)
    draw_bernoulli(ours, torch.empty(700, dtype=torch.bool), 700, 0.5)
    torch.empty(700, dtype=torch.bool).bernoulli_(0.5, generator=theirs)
    assert torch.equal(torch.randn(3, generator=ours), torch.randn(3, generator=theirs))


@pytest.mark.parametrize("probability", [-0.5, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    with pytest.raises(ValueError, match="not a probability"):
        draw_bernoulli(generator, torch.empty(8, dtype=torch.bool), 8, probability)
    assert torch.equal(generator.get_state(), state)


def test_an_exception_of_the_generator_passes_through() -> None:
    class Broken:
        def get_state(self) -> torch.Tensor:
            raise KeyError("state")

    with pytest.raises(KeyError, match="state"):
        draw_bernoulli(Broken(), torch.empty(8, dtype=torch.bool), 8, 0.5)  # type: ignore[arg-type]
