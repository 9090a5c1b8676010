"""What importing the package, and compiling without a backend of its own, loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fusewright

SOURCE = Path(fusewright.__file__).parents[1]
UNNEEDED = (
    "jinja2", "llvmlite", "rich", "sympy", "triton", "typer", "torch._dynamo", "torch._inductor",
    "fusewright.aot", "fusewright.kernels", "fusewright.lower", "fusewright.schedule",
    "fusewright.wrapper",
)  # fmt: skip


def loaded(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a program."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing() -> None:
    found = {name for name in loaded("import fusewright") if name.startswith("fusewright")}
    assert found == {"fusewright"}


def test_the_eager_backend_needs_no_code_generator() -> None:
    program = (
        "import torch, fusewright\n"
        "fusewright.compile(torch.nn.Linear(2, 3), backend='eager', fullgraph=True)"
        "(torch.ones(1, 2))"
    )
    found = loaded(program)
    assert "fusewright.capture" in found
    assert found.isdisjoint(UNNEEDED)
