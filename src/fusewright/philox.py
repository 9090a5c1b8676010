"""Random numbers that are a function of a seed and of a position: each is found without those
before it, and found again in a backward. The generator is Philox 4x32 with ten rounds (Salmon
et al., Parallel random numbers: as easy as 1, 2, 3, 2011), as on GPUs.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

WORD: Final = 0xFFFFFFFF
ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)


LANES: Final = 4
"""Words that one counter gives."""


def words(seed: Tensor, counter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four words of 32 bits for integers of 64 bits each, which broadcast."""
    seed, counter = torch.broadcast_tensors(seed, counter)
    keys = [seed & WORD, seed >> 32 & WORD]
    zero = torch.zeros_like(counter)
    a, b, c, d = counter & WORD, counter >> 32 & WORD, zero, zero
    for _ in range(ROUNDS):
        # Products of 64 bits wrap around to the same bits as those of numbers without a sign.
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b = second >> 32 & WORD ^ b ^ keys[0], second & WORD
        c, d = first >> 32 & WORD ^ d ^ keys[1], first & WORD
        keys = [(key + step) & WORD for key, step in zip(keys, KEY_STEPS, strict=True)]
    return a, b, c, d


def uniform(seed: Tensor, position: Tensor) -> Tensor:
    """Numbers in [0, 1) in float32: the upper 24 bits of word `position % 4` of the counter
    `position // 4`. Four positions that follow each other share a counter, so that kernels run the
    generator once for four numbers.
    """
    four = torch.stack(words(seed, position // LANES), -1)
    lane = (position % LANES).expand(four.shape[:-1]).unsqueeze(-1)
    return (four.gather(-1, lane).squeeze(-1) >> 8).to(torch.float32) * 2**-24
