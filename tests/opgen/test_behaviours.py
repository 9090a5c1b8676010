"""What ATen promises of variants, and what has no kernel, on both targets against the CPU."""

from __future__ import annotations

import functools
import json
import shutil

import pytest

from tests.opgen.compare import OPERATORS, programs
from tests.opgen.processes import run_program


@functools.cache
def differences(device: str) -> dict[str, str | None]:
    """What each program does otherwise, found in a process of its own: it has one device."""
    output = run_program(
        f"""
        from tests.opgen.compare import main
        main([{device!r}])
        """
    )
    found: dict[str, str | None] = json.loads(output)
    return found


def marks(device: str) -> tuple[pytest.MarkDecorator, ...]:
    """The device in Python is the sample of every change; the others are built of C++."""
    return () if device == "hosted" else (pytest.mark.thorough,)


@pytest.mark.parametrize(
    ("device", "program"),
    [
        pytest.param(device, program, marks=marks(device), id=f"{device}-{program}")
        for device in OPERATORS
        for program, _ in programs(device)
    ],
)
def test_a_device_does_as_the_cpu_does(device: str, program: str) -> None:
    if device != "hosted" and shutil.which("g++") is None:
        pytest.skip("compiles the device with g++")
    assert differences(device)[program] is None
