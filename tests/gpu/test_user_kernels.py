"""Triton kernels that programs launch themselves, on a GPU."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest
import torch
import triton

import fusewright
from tests.gpu.support import CUDA, needs_gpu

with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "0"} if torch.cuda.is_available() else {}):
    # Other tests of the same process have Triton interpret kernels, which is chosen at decoration.
    from tests.user_kernels import trained
    from tests.user_kernels.programs import PROGRAMS, add, blocks, check

pytestmark = needs_gpu

STRICT = {"strict": True, "verify": True}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, dynamic: bool) -> None:
    program = PROGRAMS[name]
    compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=STRICT)
    check(compiled, program, (40, 40, 33, 50), CUDA)


@pytest.mark.parametrize("program", trained.PROGRAMS)
def test_gradients(program: trained.Trained) -> None:
    compiled = fusewright.compile(program, fullgraph=True, options=STRICT)
    for size in (40, 40, 33):
        expected = trained.step(program, size, CUDA)
        torch.testing.assert_close(trained.step(compiled, size, CUDA), expected)


@pytest.mark.parametrize("name", ["into_new_memory", "autotuned", "in_place", "of_an_input"])
def test_a_replay(name: str) -> None:
    program = PROGRAMS[name]
    compiled = fusewright.compile(program, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(64, device=CUDA)
            own, eager = x.clone(), x.clone()
            torch.testing.assert_close(compiled(own), program(eager))
            torch.testing.assert_close(own, eager)
    assert replays(compiled) == [4]


def _wait(arguments: Any) -> None:
    torch.cuda.synchronize()


waiting = triton.autotune([triton.Config({"BLOCK": 16}, pre_hook=_wait)], key=[])(add)


def replays(compiled: Any) -> list[int]:
    """How many calls of each graph were replays."""
    halves = [half for one in fusewright.compilations(compiled) for half in one.halves]
    return [half.replayer.replays for half in halves if half.replayer is not None]


def test_a_launch_that_cannot_be_recorded() -> None:
    """The call runs unrecorded. Behind it, another program is recorded, random numbers are drawn,
    and memory is freed, also when that was so before.
    """

    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        waiting[blocks(x.numel())](x, x, out, x.numel())
        return out + 1

    for _ in range(2):
        compiled = fusewright.compile(program, fullgraph=True, mode="reduce-overhead")
        with torch.no_grad(), pytest.warns(RuntimeWarning, match="no longer replayed"):
            for _ in range(4):
                x = torch.randn(64, device=CUDA)
                torch.testing.assert_close(compiled(x), 2 * x + 1)
        assert replays(compiled) == [0]
        other = fusewright.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
        for _ in range(4):
            x = torch.randn(64, device=CUDA)
            torch.testing.assert_close(other(x), x.sin() + 1)
        assert replays(other) == [3]
        torch.cuda.empty_cache()
