"""What compiles the programs of the sweep, and what each compiler tells of itself afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.compilers import OURS, PEER
from benchmarks.libraries.program import Compile

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A compiler under measurement."""

    compile: Compile
    compiles: Callable[[], int]
    """How many graphs or frames it compiled up to now."""

    told: Callable[[], Figures]
    """The number of graphs, graph breaks, and what runs eagerly although it was to be compiled."""


@contextmanager
def fusewright_column() -> Iterator[Column]:
    """fusewright; what it tells is of all compilers that a program makes, by any way."""
    import fusewright
    from fusewright.compiler import compilers_made
    from fusewright.inspect.explanation import explain_compiler

    with compilers_made() as made:

        def told() -> Figures:
            graphs, breaks, fallbacks = 0, [], []
            for one in made:
                found = explain_compiler(one, "")
                graphs += len(found.graphs)
                breaks += [f"{each.location}: {each.what}" for each in found.breaks]
                eager = (*found.fallbacks, *found.limits, *found.failures)
                fallbacks += [str(each) for each in eager]
            return {
                "compilers": len(made),
                "graphs": graphs,
                "breaks": breaks,
                "fallbacks": fallbacks,
            }

        yield Column(
            compile=fusewright.compile,
            compiles=lambda: sum(one.capture_count for one in made),
            told=told,
        )


@contextmanager
def torch_compile_column() -> Iterator[Column]:
    """torch.compile with its default backend."""
    from torch._dynamo.utils import counters

    counters.clear()

    def told() -> Figures:
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": [
                " ".join(why.split())[:200]
                for why, times in counters["graph_break"].items()
                for _ in range(times)
            ],
            "fallbacks": [],
        }

    yield Column(
        compile=torch.compile,
        compiles=lambda: counters["stats"]["unique_graphs"],
        told=told,
    )


COLUMNS = {OURS: fusewright_column, PEER: torch_compile_column}
