"""Random draws on the CPU that are torch's own, in a tenth of the time: the generator's state is
copied, numbers are made of it in vectors, and it is put back.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from fusewright.native import draw_bernoulli

LEAST: Final = 512
"""Draws below which copying the state takes longer than torch's draws."""


def bernoulli(like: torch.Tensor, p: float, *, generator: Any = None) -> torch.Tensor:
    """`aten.bernoulli.p`: ones with probability `p`, else zeros; contiguous, of the shape and type
    of `like`, in the order of the default generator's numbers.
    """
    count = like.numel()
    if (
        generator is not None
        or count < LEAST
        or like.dtype is not torch.bool
        or like.device.type != "cpu"
        or not _makes_numbers_one_by_one()
    ):
        drawn: torch.Tensor = torch.ops.aten.bernoulli.p(like, p, generator=generator)
        return drawn
    result = torch.empty(like.shape, dtype=torch.bool)
    draw_bernoulli(torch.default_generator, result, count, p)
    return result


@functools.cache
def _makes_numbers_one_by_one() -> bool:
    """Whether torch draws as `draw_bernoulli` does: where it is built with MKL it leaves this to
    MKL, on processors of Intel's. Found out by drawing both ways from equal generators.
    """
    ours, theirs = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    for count in (1, 700):
        expected = torch.empty(count, dtype=torch.bool).bernoulli_(0.5, generator=theirs)
        drawn = torch.empty_like(expected)
        try:
            draw_bernoulli(ours, drawn, count, 0.5)
        except ValueError:
            return False
        is_equal = torch.equal(drawn, expected)
        if not is_equal or not torch.equal(ours.get_state(), theirs.get_state()):
            return False
    return True
