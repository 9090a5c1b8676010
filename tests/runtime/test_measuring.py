"""`python FILE` of a generated module: what it says of each kernel and library call."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.inspect.timing import time_graph
from fusewright.runtime.compiled import CompiledGraph
from fusewright.runtime.measuring import Input
from tests.threads import with_threads

TABLE = torch.randn(64, 64).double()


def program(x: torch.Tensor, w: torch.Tensor, ids: torch.Tensor) -> Any:
    y = torch.relu(x @ w.t()) + TABLE[ids]
    y = torch.nn.functional.layer_norm(y, (64,)) @ TABLE
    y = torch.nn.functional.layer_norm(y, (64,)) @ TABLE
    return y.sort(-1)[0]


@pytest.fixture(scope="module")
def path() -> Path:
    """The module of a graph with a size that varies, a constant, and a kernel that runs twice."""
    made = fusewright.compile(program, dynamic=True, options={"strict": True})
    made(torch.randn(30, 40).double(), torch.randn(64, 40).double(), torch.arange(30))
    (compilation,) = fusewright.compilations(made)
    assert isinstance(compilation.compiled, CompiledGraph)
    return compilation.compiled.path


def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(Path(fusewright.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
    )


def test_each_kernel_and_call_has_a_row(path: Path) -> None:
    names = re.findall(r"runtime\.Size\(.(\w+).\)", path.read_text())
    done = run(path, *(f"{name}=100" for name in names))
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:-1]}
    products, sorts = rows["aten_mm_out"], rows["aten_sort_default"]
    assert products[0] == "3" and sorts[0] == "1" and len(products) == 3
    kernels = {name: row for name, row in rows.items() if name.startswith("cpu_")}
    assert kernels and all(len(row) == 6 for row in kernels.values())
    (first,) = (row for name, row in kernels.items() if "relu" in name)
    moved = 100 * 64 * 8 * 2 + 64 * 64 * 8 + 100 * 8  # the product in and out, table and indices
    assert first[3] == f"{moved / 1e6:.3f}"
    times = [float(row[1]) for row in rows.values()]
    whole = re.search(r"calls: ([\d.]+) ms, .* take ([\d.]+) ms", done.stdout.splitlines()[-1])
    assert whole and float(whole[2]) == pytest.approx(sum(times) / 1e3, abs=0.002)


def paths_of(function: Any, *arguments: Any, **options: Any) -> list[Path]:
    """The modules of a function's graphs, backward halves too."""
    compiled = fusewright.compile(function, options={"strict": True, **options})
    result = compiled(*arguments)
    result = result[0] if isinstance(result, tuple) else result
    paths = []
    if result.requires_grad:
        result.sum().backward()
    for compilation in fusewright.compilations(compiled):
        assert isinstance(compilation.compiled, CompiledGraph)
        paths += [half.path for half in compilation.halves]
    return paths


def launched(path: Path) -> list[str]:
    """The kernels that `python FILE` times."""
    done = run(path)
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()[1:-1] if line.startswith("cpu_")]


def test_halves_of_a_training_graph() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8))
    paths = paths_of(layers, torch.randn(4, 8))
    assert len(paths) == 2 and all(map(launched, paths))


def test_choices_and_conditions() -> None:
    def conditional(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v.sum(-1) * 2, lambda v: v.amax(-1), (x,))

    with with_threads(2):  # With one there is nothing to choose.
        (path,) = paths_of(conditional, torch.ones(3, 8192), multi_kernel_cache=False)
    assert "runtime.Choice(" in path.read_text()
    kernels = launched(path)
    assert any("sum_gt" in name for name in kernels) and len(kernels) >= 2


def test_modules_that_only_their_program_calls() -> None:
    with torch.no_grad():
        convolution = torch.nn.Conv2d(3, 4, 3).eval()
        (frozen,) = paths_of(convolution, torch.randn(1, 3, 8, 8), freeze=True)
    (recurrent, _) = paths_of(torch.nn.LSTM(4, 4), torch.randn(3, 2, 4))
    for path, words in (
        (frozen, "this module takes what only its program makes: a packed weight"),
        (recurrent, "this module needs the constant lstm_layer"),
    ):
        done = run(path)
        assert done.returncode == 1 and done.stderr.startswith(words), done.stderr


def test_a_size_it_has_not_is_refused(path: Path) -> None:
    done = run(path, "s99=4")
    assert done.returncode != 0 and "'s99=4' is no size of this module; it has: s" in done.stderr


@pytest.mark.parametrize(
    "dtype", [torch.float8_e5m2, torch.bfloat16, torch.complex64, torch.bool, torch.uint8]
)
def test_inputs_of_every_kind(dtype: torch.dtype) -> None:
    tensor = Input(("s0", "s0//2"), (1, "s0"), dtype, "cpu").random({"s0": 6})
    assert tensor.shape == (6, 3) and tensor.stride() == (1, 6) and tensor.dtype is dtype
    repeated = Input((4, 3), (0, 2), dtype, "cpu").random({})
    assert repeated.shape == (4, 3) and repeated.stride() == (0, 2)
    assert Input((0, 3), (3, 1), dtype, "cpu").random({}).shape == (0, 3)


def solves(factors: torch.Tensor, pivots: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.ldl_solve(factors, pivots, x) * 2


def test_a_kernel_that_trusts_integers_is_not_called_on_random_ones() -> None:
    """The rows that pivots name are swapped, whether there are such rows or not."""
    x = torch.eye(4)
    compiled = fusewright.compile(solves, options={"strict": True})
    compiled(*torch.linalg.ldl_factor(x), x)
    (compilation,) = fusewright.compilations(compiled)
    assert isinstance(compilation.compiled, CompiledGraph)
    done = run(compilation.compiled.path)
    assert done.returncode == 1 and "trusts the integers" in done.stderr
    with pytest.raises(RuntimeError, match="trusts the integers"):
        time_graph(compilation.compiled)
