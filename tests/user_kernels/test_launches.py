"""Launches of a program's own Triton kernels stand in its graph, and do what they do eagerly."""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

from typing import Any

import pytest
import torch

import fusewright
from tests.user_kernels.programs import PROGRAMS

assert interpreter

STRICT = {"strict": True, "verify": True}


def check(compiled: Any, program: Any, sizes: tuple[int, ...] = (40, 40, 33, 50)) -> None:
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(size)
            own, eager = x.clone(), x.clone()
            result, expected = compiled(own), program(eager)
            torch.testing.assert_close(result, expected, check_stride=True)
            torch.testing.assert_close(own, eager)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, dynamic: bool) -> None:
    program = PROGRAMS[name]
    for target in ("native", "python", "fx"):
        options = {**STRICT, "target": target}
        check(
            fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options), program
        )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "loops_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_another_backend(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    check(fusewright.compile(program, fullgraph=True, backend=backend), program, (40, 33))
