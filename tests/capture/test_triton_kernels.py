"""Kernels that a program launches itself run between two graphs, and Triton's code is no part of
either.
"""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import torch
import triton
import triton.language as tl

import fusewright
from fusewright.events import GraphBreak

assert interpreter


@triton.jit
def add(left, right, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(left + place, inside) + tl.load(right + place, inside), inside)


def layer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 16),)](x, y, out, x.numel(), BLOCK=16)
    return out * 2


def test_a_launch_is_one_break() -> None:
    compiled = fusewright.compile(layer)
    with torch.no_grad():
        for size in (100, 100, 7, 33):
            x, y = torch.randn(size), torch.randn(size)
            torch.testing.assert_close(compiled(x, y), layer(x, y))
    breaks = [event for event in compiled.compiler.events if isinstance(event, GraphBreak)]
    assert {event.reason for event in breaks} == {"triton-kernel"}
    names = {one.function for one in fusewright.compilations(compiled)}
    assert names == {"layer"}
