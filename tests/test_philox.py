"""Random numbers of a seed and a position."""

from __future__ import annotations

import pytest
import torch

from fusewright import philox

KNOWN = [
    (0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
]
"""Seed, counter, words: the first of the vectors that the authors of Philox publish."""


@pytest.mark.parametrize(("seed", "counter", "words"), KNOWN)
def test_known_words(seed: int, counter: int, words: list[int]) -> None:
    found = philox.words(torch.tensor(seed), torch.tensor(counter))
    assert [int(word) for word in found] == words


def test_numbers_are_spread_evenly() -> None:
    """Of each of three seeds: the mean, the share below a tenth, and neighbours' correlation lie
    within five standard deviations of what they are for independent numbers.
    """
    count = 1 << 18
    for seed in (0, -1, 1 << 40):
        drawn = philox.uniform(torch.tensor(seed), torch.arange(count)).double()
        assert float(drawn.min()) >= 0 and float(drawn.max()) < 1
        assert abs(float(drawn.mean()) - 0.5) < 5 / (12 * count) ** 0.5
        assert abs(float((drawn < 0.1).double().mean()) - 0.1) < 5 * (0.09 / count) ** 0.5
        centred = drawn - 0.5
        together = float((centred[1:] * centred[:-1]).mean()) * 12
        assert abs(together) < 5 / count**0.5


def test_seeds_and_positions_of_64_bits_count() -> None:
    places = torch.tensor([5, 5 + (1 << 32), 5 - (1 << 62)])
    for seed in (7, 7 + (1 << 32), -7):
        assert len(set(philox.uniform(torch.tensor(seed), places).tolist())) == 3
    seeds = torch.tensor([7, 7 + (1 << 32), -7])
    assert len(set(philox.uniform(seeds, torch.tensor(5)).tolist())) == 3
