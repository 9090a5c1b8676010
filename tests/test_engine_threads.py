"""The threads of autograd's engine have dropped what they hold before the interpreter ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
import os, warnings
warnings.simplefilter("ignore")
import torch
import fusewright
from fusewright import engine_threads
from examples.external_backend.build import load

run = engine_threads.torch_compat.autograd.gradients
def gradients(outputs, tangents, edges):
    outputs[0].register_hook(lambda _: print("on the engine's thread", end=", ", flush=True))
    found = run(outputs, tangents, edges)
    os.write(1, f"settled {outputs[0].device}\\n".encode())
    return found
engine_threads.torch_compat.autograd.gradients = gradients

load()
program = fusewright.compile(lambda x: x + 1, backend="eager")
for requires_grad in (False, True, True):
    program(torch.ones(3, device="ember", requires_grad=requires_grad))
program(torch.ones(3, requires_grad=True))
print("done", flush=True)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles the example's device with g++")
def test_the_thread_of_a_device_is_waited_for_once() -> None:
    """Where it is not, one process in fifty aborts, which no test can rely on."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["done", "on the engine's thread, settled ember:0"]
