"""How the time to trace and partition a training step grows with the depth of a model.

    python -m benchmarks.growth [--layers N …]

BERT's gradient is traced and cut into forward and backward halves, for each number of layers; the
table shows CPU seconds of each part, and a layer's share, which stays the same where growth is
linear. Nothing is compiled or run: the weights are memory that nobody fills.

The exit status is 1 if 12 layers take longer than `MOST_SECONDS`, or if a layer of the deepest
model takes more than `MOST_GROWTH` times as long as one of the shallowest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import fx

import fusewright
from benchmarks.models import BATCH, LENGTH
from fusewright.aot import min_cut_rematerialization_partition, trace_training
from fusewright.context import COLLECTOR_PAUSE, CompileContext

MOST_SECONDS = 1.5
MOST_GROWTH = 1.25
LAYERS = (6, 12, 24, 48)


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU seconds for one depth."""

    layers: int
    trace: float
    partition: float
    nodes: int
    """Of the joint graph."""

    @property
    def total(self) -> float:
        """Seconds for both."""
        return self.trace + self.partition

    @property
    def a_layer(self) -> float:
        """Seconds for both, by layer."""
        return self.total / self.layers


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--layers", nargs="+", type=int, default=LAYERS)
    depths = sorted(parser.parse_args(arguments).layers)

    measure(min(depths))  # what is loaded and cached on first use is not growth
    rows = [measure(layers) for layers in depths]
    Console().print(table(rows))
    growth = rows[-1].a_layer / rows[0].a_layer
    print(f"a layer of {depths[-1]}: {growth:.2f} times as long as one of {depths[0]}")
    slow = any(row.layers == 12 and row.total > MOST_SECONDS for row in rows)
    return int(slow or growth > MOST_GROWTH)


def measure(layers: int, repeats: int = 3) -> Measured:
    """The fastest of `repeats` times, for a model of `layers`."""
    module, inputs = captured(layers)
    best: Measured | None = None
    for _ in range(repeats):
        with COLLECTOR_PAUSE:
            context = CompileContext()
            start = time.process_time()
            joint = trace_training(module, inputs, context)
            traced = time.process_time()
            min_cut_rematerialization_partition(joint)
            end = time.process_time()
        found = Measured(layers, traced - start, end - traced, len(joint.graph.nodes))
        if best is None or found.total < best.total:
            best = found
    assert best is not None
    return best


def captured(layers: int) -> tuple[fx.GraphModule, list[Any]]:
    """BERT as captured, with its inputs."""
    from transformers import BertConfig, BertForMaskedLM

    with torch.device("meta"):
        model = BertForMaskedLM(BertConfig(num_hidden_layers=layers))
    model = model.to_empty(device="cpu").eval()
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        found.append((module, list(inputs)))
        raise _Captured

    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    try:
        fusewright.compile(model, backend=backend, fullgraph=True)(tokens)
    except Exception as error:
        if not found:
            raise error
    return found[0]


class _Captured(Exception):
    """The graph is known: nothing is compiled."""


def table(rows: Sequence[Measured]) -> Table:
    """One line a depth."""
    shown = Table("layers", "nodes", "trace", "partition", "together", "a layer")
    for row in rows:
        seconds = (f"{1e3 * one:.0f} ms" for one in (row.trace, row.partition, row.total))
        shown.add_row(str(row.layers), str(row.nodes), *seconds, f"{1e3 * row.a_layer:.1f} ms")
    return shown


if __name__ == "__main__":
    sys.exit(main())
