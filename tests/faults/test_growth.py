"""A process that compiles one function after the other, and drops them, does not grow.

`FUSEWRIGHT_TEST_COMPILES=1000` has it compile so many, which takes a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2]

PROGRAM = """
import gc, sys
import torch, fusewright
from tests.leftovers import held_bytes

def compile_one(number):
    def function(x, w):
        return ((x * number).sin() @ w).cumsum(0).square().mul(number).mean()

    w = torch.ones(4, 5, requires_grad=True)
    fusewright.compile(function)(torch.ones(3, 4), w).backward()

def look():
    gc.collect()
    gc.collect()
    return held_bytes(), len(gc.get_objects())

count = int(sys.argv[1])
for number in range(40):
    compile_one(number + 0.5)
before = look()
for number in range(count):
    compile_one(number + 100.5)
after = look()
print(*((new - old) / count for old, new in zip(before, after)))
"""


COMPILES = os.environ.get("FUSEWRIGHT_TEST_COMPILES", "60")


def test_functions_that_are_dropped_leave_nothing(tmp_path: Path) -> None:
    """Neither memory of the C library and Python, by function, nor objects that the collector sees.
    Some memory comes in large pieces now and then, 2 MB once in a thousand compiles; what one
    compile holds while it is alive, its machine code, LLVM's passes or its text, is 7 kB and more.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SOURCE / 'src'}:{SOURCE}",
        "FUSEWRIGHT_CACHE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, COMPILES],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    held, objects = map(float, run.stdout.split())
    assert objects < 1 and held < 4000, (held, objects)
