"""Launches of a program's own Triton kernels stand in its graph, and do what they do eagerly."""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import pytest

import fusewright
from tests.user_kernels.programs import PROGRAMS, check

assert interpreter

STRICT = {"strict": True, "verify": True}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, dynamic: bool) -> None:
    program = PROGRAMS[name]
    for target in ("native", "python", "fx"):
        options = {**STRICT, "target": target}
        compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options)
        check(compiled, program, (40, 40, 33, 50))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "loops_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_another_backend(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    check(fusewright.compile(program, fullgraph=True, backend=backend), program, (40, 33))
