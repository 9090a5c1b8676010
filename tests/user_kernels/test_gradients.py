"""Autograd functions that launch Triton kernels are captured with forward and backward."""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

from typing import Any

import pytest
import torch

import fusewright
from tests.user_kernels.programs import add, blocks
from tests.user_kernels.trained import PROGRAMS, step

assert interpreter

STRICT = {"strict": True, "verify": True}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: Any, dynamic: bool) -> None:
    for options in ({"options": STRICT}, {"backend": "aot_eager"}, {"backend": "loops_eager"}):
        compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, **options)
        for size in (40, 40, 33):
            torch.testing.assert_close(step(compiled, size), step(program, size))


def test_a_step_of_an_optimizer() -> None:
    """A parameter, which is a leaf, may be written to where gradients are off."""

    @torch.no_grad()
    def update(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        add[blocks(parameter.numel())](parameter, gradient, parameter, parameter.numel(), BLOCK=16)

    compiled = fusewright.compile(update, fullgraph=True, options=STRICT)
    parameter, gradient = torch.randn(40).requires_grad_(), torch.randn(40)
    before = parameter.detach().clone()
    for times in (1, 2, 3):
        compiled(parameter, gradient)
        torch.testing.assert_close(parameter.detach(), before + times * gradient)
