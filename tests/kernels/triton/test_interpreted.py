"""Whole programs compiled to Triton kernels, which are interpreted: what they give, and their
gradients, are eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import fusewright
from tests.gpu.programs import DIFFERENTIABLE, PROGRAMS
from tests.gpu.support import agree, gradients
from tests.kernels.triton.interpreted import NAME

SHORT = [name for name, case in PROGRAMS.items() if not case.long]
CPU = torch.device("cpu")


def slow(slow_names: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Names to test with, some of which `make test` leaves out."""
    thorough = pytest.mark.thorough
    return [pytest.param(n, marks=thorough if n in slow_names else ()) for n in names]


def compiled(name: str, **keywords: Any) -> Any:
    function = PROGRAMS[name].function
    options = {"strict": True, "verify": True}
    return fusewright.compile(function, backend=NAME, options=options, **keywords)


SLOW = ("batch_norm_of_many_pixels", "batch_norm_of_many_pixels_by_channels")


@pytest.mark.parametrize("name", slow(SLOW, SHORT))
def test_a_program(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    with torch.no_grad():
        agree(compiled(name, fullgraph=True)(*inputs), PROGRAMS[name].function(*inputs))


@pytest.mark.parametrize(
    "name", slow(("sums_of_columns_beside_rows",), [n for n in SHORT if n in DIFFERENTIABLE][::3])
)
def test_the_gradient_of_a_program(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    found = gradients(compiled(name, fullgraph=True), inputs)
    agree(found, gradients(PROGRAMS[name].function, inputs), factor=4)


SLOW_OF_ANY_SIZE = (
    "losses_of_half_type", "row_sums", "one_long_sum",
    "residual_convolutions_of_half_type", "layer_norm_of_long_rows", *SLOW,
)  # fmt: skip
"""Programs that Triton's interpreter takes seconds for, of symbolic sizes."""

LEFT_OUT_OF_ANY_SIZE = ("positions_of_extremes",)
"""A minute and a half in the interpreter; `test_kernels.py` has an argmax over a symbolic size."""


@pytest.mark.parametrize(
    "name", slow(SLOW_OF_ANY_SIZE, [n for n in SHORT if n not in LEFT_OUT_OF_ANY_SIZE])
)
def test_a_program_of_any_size(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    with torch.no_grad():
        agree(compiled(name, dynamic=True)(*inputs), PROGRAMS[name].function(*inputs))
