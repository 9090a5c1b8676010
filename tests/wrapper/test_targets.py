"""The native plan and the Python module of one graph: equal results, objects, errors and lines."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fusewright
from fusewright.config import TARGETS, Options
from fusewright.context import CompileContext
from fusewright.native import CallPlan
from fusewright.pipeline import compile_graph
from fusewright.runtime.compiled import CompiledGraph


def compiled(function: Callable[..., Any], target: str, *examples: Any) -> CompiledGraph:
    """The graph of a function, compiled for a target."""
    context = CompileContext(options=Options(verify=True, target=target))
    with torch.no_grad():
        return compile_graph(fx.symbolic_trace(function), examples, context)


def mixed(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Kernels, library calls, views, and memory that is used again."""
    y = torch.relu(x @ w.t()) + 1
    z = torch.softmax(y[1:] @ w, -1)
    return z.t(), y.sort(-1)[0], x[1:]


@pytest.mark.parametrize("offset", [0, 3])
def test_results_are_equal(offset: int) -> None:
    x, w = torch.randn(offset + 4, 6)[offset:], torch.randn(offset + 5, 6)[offset:]
    x, w = x[:4], w[:5]
    expected = mixed(x, w)
    for target in TARGETS:
        found = compiled(mixed, target, x, w)(x, w)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
        assert found[2].data_ptr() == x[1:].data_ptr() and found[2]._base is not None


@pytest.mark.parametrize("target", TARGETS)
def test_tensors_without_memory(target: str) -> None:
    """What is allocated on the device `meta` stays there, beside what is computed."""

    def program(x: torch.Tensor) -> Any:
        y = x.to("meta")
        return y @ y.t(), x.sort(-1)[0] * 2

    x = torch.randn(2, 4)
    found, other = compiled(program, target, x)(x)
    assert found.device.type == "meta" and found.shape == (2, 2)
    torch.testing.assert_close(other, x.sort(-1)[0] * 2)


def test_the_native_one_is_a_plan() -> None:
    x, w = torch.randn(4, 6), torch.randn(5, 6)
    product = lambda x, w: (x @ w.t() * 2,)  # noqa: E731
    assert isinstance(compiled(product, "native", x, w).run, CallPlan)
    assert not isinstance(compiled(product, "python", x, w).run, CallPlan)


def lines_of_an_error(graph: CompiledGraph, *inputs: Any) -> tuple[str, list[tuple[str, int]]]:
    """What a call raises, and the lines of the generated module that its traceback names."""
    with pytest.raises(Exception) as raised:
        graph(*inputs)
    frames = traceback.extract_tb(raised.value.__traceback__)
    found = [
        (one.line or "", one.lineno or 0) for one in frames if Path(one.filename) == graph.path
    ]
    return f"{type(raised.value).__name__}: {raised.value}", found


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x, i: (torch.relu(x)[i] * 2 + 1,), "kernel"),
        (lambda x, i: (torch.cholesky_inverse(torch.linalg.cholesky(x)) + 1,), "library"),
    ],
    ids=["kernel", "library"],
)
def test_errors_name_the_same_line(function: Callable[..., Any], name: str) -> None:
    good = torch.eye(4), torch.tensor([1, 2])
    bad = {"kernel": (good[0], torch.tensor([1, 9])), "library": (-good[0], good[1])}[name]
    targets = ("native", "python")
    found = [lines_of_an_error(compiled(function, one, *good), *bad) for one in targets]
    assert found[0] == found[1]
    (statement, _), *others = found[0][1]
    assert not others and ("cholesky" in statement) == (name == "library")


def test_calls_leave_nothing_behind() -> None:
    """Also one that fails, in the middle of it."""
    x, index = torch.eye(4), torch.tensor([1, 2])
    graph = compiled(lambda x, i: ((x @ x)[i] * 2, x.sort()[0]), "native", x, index)
    wrong = torch.tensor([1, 9])

    def call(times: int) -> tuple[int, ...]:
        for _ in range(times):
            graph(x, index)
            with pytest.raises(IndexError):
                graph(x, wrong)
        gc.collect()
        tensors = sum(isinstance(one, torch.Tensor) for one in gc.get_objects())
        return tensors, *map(sys.getrefcount, (x, index, wrong))

    tensors, *references = call(3)
    more_tensors, *same_references = call(50)
    assert references == same_references
    assert more_tensors <= tensors  # other tests' may have died


def test_numbers_are_found_in_arguments_without_python() -> None:
    """Sizes, what they are multiples of, numbers given, and arguments that nothing needs."""

    def program(x: torch.Tensor, y: torch.Tensor, n: int, unused: torch.Tensor) -> Any:
        return torch.cat([x, x]) * n + y.sum(), x.shape[0] * n, y.reshape(-1, 2) * 2

    made = fusewright.compile(program, dynamic=True, options={"strict": True, "target": "native"})
    for size, n in ((3, 2), (5, 7), (8, 3)):
        x, y = torch.randn(size, 4), torch.randn(2 * size)
        unused = torch.ones(size)
        for one, other in zip(made(x, y, n, unused), program(x, y, n, unused), strict=True):
            torch.testing.assert_close(one, other)
    (compilation,) = fusewright.api.compilations(made)
    assert isinstance(compilation.compiled, CompiledGraph)
    assert isinstance(compilation.compiled.entry, CallPlan)
