"""`run`: what is compiled runs, and nothing is compiled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from fusewright.compiled import compiler_of

X = torch.arange(6.0).reshape(2, 3)

calls: list[str] = []


def program(x):
    calls.append("eager")
    return x + 1


def test_run_uses_what_is_compiled_and_compiles_nothing() -> None:
    graphs: list[Any] = []
    compiled = fusewright.compile(
        lambda x: x + 1, backend=lambda g, i: graphs.append(g) or g.forward, dynamic=False
    )
    running = fusewright.run(compiled)
    assert torch.equal(running(X), X + 1) and graphs == []
    compiled(X)
    assert torch.equal(running(X), X + 1) and len(graphs) == 1
    assert torch.equal(running(X[:1]), X[:1] + 1) and len(graphs) == 1
    compiled(X[:1])
    assert len(graphs) == 2, "outside of run all is as ever"


def test_what_runs_is_the_compiled_code() -> None:
    def marked(graph: Any, inputs: Any) -> Any:
        return lambda *given: tuple(each + 100 for each in graph.forward(*given))

    compiled = fusewright.compile(lambda x: x + 1, backend=marked)
    assert torch.equal(fusewright.run(compiled)(X), X + 1)
    compiled(X)
    assert torch.equal(fusewright.run(compiled)(X), X + 101)


def test_modules_decorators_and_exceptions() -> None:
    module = nn.Linear(3, 3)
    compiled = fusewright.compile(module, backend="eager")

    @fusewright.run
    def loop(x, *, times):
        """Calls compiled code."""
        for _ in range(times):
            x = compiled(x)
        return x

    assert loop.__name__ == "loop" and loop.__doc__ == "Calls compiled code."
    assert torch.equal(loop(X, times=2), module(module(X)))
    assert compiler_of(compiled).capture_count == 0
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fusewright.run(compiled)(torch.ones(2, 4))
    compiled(X)
    assert compiler_of(compiled).capture_count == 1
    assert torch.equal(fusewright.run(compiled)(X), module(X))


def test_behind_graph_breaks() -> None:
    def inner(x):
        fusewright.graph_break()
        return x * 2

    def outer(x):
        return inner(x + 1) - 1

    compiled = fusewright.compile(outer, backend="eager")
    running = fusewright.run(compiled)
    assert torch.equal(running(X), outer(X)) and compiler_of(compiled).capture_count == 0
    compiled(X)
    before = compiler_of(compiled).capture_count
    assert torch.equal(running(X), outer(X)) and compiler_of(compiled).capture_count == before


def test_other_threads_compile() -> None:
    compiled = fusewright.compile(lambda x: x + 1, backend="eager")
    counts = []

    @fusewright.run
    def meanwhile():
        thread = threading.Thread(target=compiled, args=(X,))
        thread.start()
        thread.join()
        counts.append(compiler_of(compiled).capture_count)

    meanwhile()
    assert counts == [1]
