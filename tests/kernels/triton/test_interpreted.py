"""Whole programs compiled to Triton kernels, which are interpreted: what they give, and their
gradients, are eager's.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from tests.gpu.programs import DIFFERENTIABLE, PROGRAMS
from tests.gpu.support import agree, gradients
from tests.kernels.triton.interpreted import NAME

SHORT = [name for name, case in PROGRAMS.items() if not case.long]
CPU = torch.device("cpu")


def compiled(name: str, **keywords: Any) -> Any:
    function = PROGRAMS[name].function
    options = {"strict": True, "verify": True}
    return fusewright.compile(function, backend=NAME, options=options, **keywords)


@pytest.mark.parametrize("name", SHORT)
def test_a_program(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    with torch.no_grad():
        agree(compiled(name, fullgraph=True)(*inputs), PROGRAMS[name].function(*inputs))


@pytest.mark.parametrize("name", [name for name in SHORT if name in DIFFERENTIABLE][::3])
def test_the_gradient_of_a_program(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    found = gradients(compiled(name, fullgraph=True), inputs)
    agree(found, gradients(PROGRAMS[name].function, inputs), factor=4)


SLOW_OF_ANY_SIZE = ("positions_of_extremes",)
"""Programs that Triton's interpreter takes most of a minute for, where sizes are symbolic."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in SLOW_OF_ANY_SIZE else ())
        for name in SHORT
    ],
)
def test_a_program_of_any_size(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    with torch.no_grad():
        agree(compiled(name, dynamic=True)(*inputs), PROGRAMS[name].function(*inputs))
