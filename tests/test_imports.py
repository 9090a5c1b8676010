"""What importing the package, and compiling without a backend of its own, loads."""

from __future__ import annotations

import compileall
import graphlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fusewright

SOURCE = Path(fusewright.__file__).parents[1]
UNNEEDED = (
    "jinja2", "llvmlite", "numpy.random", "rich", "sympy", "triton", "typer",
    "torch._dynamo", "torch._inductor",
    "fusewright.aot", "fusewright.kernels", "fusewright.lower", "fusewright.schedule",
    "fusewright.wrapper",
)  # fmt: skip


def run(program: str, **environment: str) -> str:
    """What a program prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def loaded(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a program."""
    return set(run(f"import sys\n{program}\nprint(*sys.modules)").split())


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


@pytest.fixture(scope="module")
def with_bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with its bytecode beside it, as where it is installed."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        SOURCE / "fusewright", folder / "fusewright", ignore=shutil.ignore_patterns("__pycache__")
    )
    assert compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.mark.parametrize(
    ("load", "limit"),
    [("fusewright.compile", 0.2), ("fusewright.lookup_backend('fusewright')", 0.3)],
)
def test_the_compiler_loads_quickly_after_torch(
    with_bytecode: Path, load: str, limit: float
) -> None:
    """The bounds are shares of what importing torch takes of the processor's time in the same
    process, which a slow machine leaves as they are; each is more than twice what it takes."""
    program = (
        "import time\n"
        "began = time.process_time()\n"
        "import torch\n"
        "there = time.process_time()\n"
        "import fusewright\n"
        f"{load}\n"
        "print((time.process_time() - there) / (there - began))"
    )
    path = str(with_bytecode)
    assert min(float(run(program, PYTHONPATH=path)) for _ in range(2)) < limit


def test_a_value_that_is_computed_while_capturing_loads_nothing_of_torch() -> None:
    program = (
        "import torch, fusewright\n"
        "def f(x): return x * torch.arange(5000).max().item()\n"
        "fusewright.compile(f, backend='eager', fullgraph=True)(torch.ones(3))"
    )
    assert loaded(program).isdisjoint(UNNEEDED)


def test_a_training_step_of_a_transformer_loads_no_symbols_of_torch() -> None:
    """Some of torch's meta kernels load sympy; and an operator that is called on fakes outside of
    their mode has torch load distributed tensors, and sympy with them: half a second.
    """
    program = (
        "import torch, fusewright\n"
        "from torch import nn\n"
        "layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)\n"
        "model = nn.Sequential(nn.Embedding(5, 4), layer, nn.Flatten(0, 1))\n"
        "loss = lambda x: nn.functional.cross_entropy(model(x), x.flatten())\n"
        "fusewright.compile(loss, options={'strict': True})(torch.tensor([[1, 2, 3]])).backward()"
    )
    assert loaded(program).isdisjoint({"sympy", "torch.distributed.tensor", "torch._dynamo"})


def test_no_module_imports_itself_through_others() -> None:
    """But in annotations, where the import contract names the few that do."""
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("fusewright", exclude_type_checking_imports=True, cache_dir=None)
    imported = {
        name: graph.find_modules_directly_imported_by(name) - {name}  # the extension counts so
        for name in graph.modules
    }
    assert len(imported) > 400
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError, which shows the circle
