"""What ATen promises of variants, and what has no kernel, on both targets against the CPU."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.opgen.compare import OPERATORS, programs
from tests.opgen.processes import got_through

ROOT = Path(__file__).parents[2]


@functools.cache
def differences(device: str) -> dict[str, str | None]:
    """What each program does otherwise, found in a process of its own: it has one device."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.opgen.compare", device],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert got_through(done), done.stderr
    return json.loads(done.stdout)


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
