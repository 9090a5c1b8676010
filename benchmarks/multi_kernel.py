"""Reductions for which it is unclear which kernel is fastest: every way by itself, and the one that
measuring at the first call chose.

    python -m benchmarks.multi_kernel [--device cuda|cpu] [--shapes N] [--table FILE]

Rows of 1 Ki to 64 Ki elements, few and many, are summed, or go through a softmax. Each way is
forced by the option `multi_kernel`; the columns take turns, and the least time of each counts.
`chosen` is what a call chose for itself, and `loses` by how much that is slower than the best
column, measured again. Below stands how much each way alone would lose at worst. Then a second
process compiles the same, and may time nothing. The exit status is 1 where it does, or where what
was chosen loses more than `--limit`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from fusewright.runtime.choices import time_runs
from fusewright.runtime.compiled import CompiledGraph

LENGTHS = (1 << 10, 1 << 13, 1 << 14, 1 << 15, 1 << 16)
ROWS = {"cpu": (1, 3, 5, 9), "cuda": (4, 64, 256, 2048)}
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: torch.softmax(x, -1),
}
LIMIT = 0.03
TURNS = 9
"""How often all columns of a shape are timed, each time as a first call does."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A reduction."""

    kind: str
    rows: int
    length: int

    def __str__(self) -> str:
        return f"{self.kind} {self.rows} x {self.length}"

    def compiled(self, device: str, **options: Any) -> CompiledGraph:
        """The reduction, compiled for one size."""
        function = KINDS[self.kind]
        module = fx.symbolic_trace(lambda x: (function(x),))
        context = CompileContext(options=Options(strict=True, **options))
        with torch.no_grad():
            return compile_graph(module, [self.argument(device)], context)

    def argument(self, device: str) -> torch.Tensor:
        return torch.randn(self.rows, self.length, device=device)


@dataclass(slots=True)
class Row:
    """The times of one shape."""

    shape: Shape
    seconds: dict[str, float] = field(default_factory=dict)
    """By way; the way that was chosen is called `chosen`, and is measured by itself."""

    winners: tuple[str, ...] = ()
    """What was chosen, by kernel."""

    @property
    def best(self) -> float:
        return min(self.seconds.values())

    def loses(self, way: str) -> float:
        """By which part a way is slower than the best."""
        return self.seconds[way] / self.best - 1


def shapes(device: str) -> list[Shape]:
    return [Shape(kind, rows, n) for kind in KINDS for rows in ROWS[device] for n in LENGTHS]


def measure(shape: Shape, device: str, table: str) -> Row | None:
    """The times of a shape; None where the compiler has one way alone."""
    chosen = shape.compiled(device, multi_kernel="on", multi_kernel_table=table)
    choices = chosen.record.choices
    if not choices:
        return None
    names = max((choice.alternatives for choice in choices), key=len)
    columns = {
        name: shape.compiled(device, multi_kernel=str(number)) for number, name in enumerate(names)
    }
    columns["chosen"] = chosen
    x = shape.argument(device)
    runs = [lambda graph=graph: graph.run([x]) for graph in columns.values()]
    for run in runs:
        run()  # the choice is made here
    row = Row(shape)
    for choice in choices:
        (decision,) = choice.decisions.values()
        row.winners += (choice.alternatives[decision.winner],)
    for _ in range(TURNS):
        for name, seconds in zip(columns, time_runs(runs, torch.device(device)), strict=True):
            row.seconds[name] = min(seconds, row.seconds.get(name, seconds))
    return row


def second_process(device: str, count: int) -> str:
    """What another process says that compiles and calls the same."""
    command = [sys.executable, "-m", "benchmarks.multi_kernel", "--device", device, "--again"]
    command += ["--shapes", str(count)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).strip().splitlines()[-1]


def call_all(device: str, count: int) -> int:
    """Compile and call each shape; how many choices were timed in this process."""
    timed = 0
    for shape in shapes(device)[:count]:
        graph = shape.compiled(device, multi_kernel="on")
        graph.run([shape.argument(device)])
        for choice in graph.record.choices:
            timed += any(decision.source == "timed" for decision in choice.decisions.values())
    return timed


WAYS = {"cpu": ("whole", "split", "lanes"), "cuda": ("held", "walked", "split")}


def print_row(row: Row, ways: Sequence[str]) -> None:
    cells = [f"{row.seconds[way] * 1e6:10.2f}" if way in row.seconds else " " * 10 for way in ways]
    winners = ", ".join(row.winners)
    print(f"{row.shape!s:24}{''.join(cells)}  {row.loses('chosen'):6.1%}  {winners}", flush=True)


def print_worst(rows: Sequence[Row], ways: Sequence[str]) -> None:
    """By how much each way alone loses where it loses most."""
    for way in ways:
        own = [row for row in rows if way in row.seconds]
        if own:
            worst = max(own, key=lambda row: row.loses(way))
            print(f"{way} loses at most {worst.loses(way):.1%} ({worst.shape}), of {len(own)}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shapes", type=int, default=1000, help="so many of them, from the first")
    parser.add_argument("--table", default="", help="a file for the table of decisions, as CSV")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--again", action="store_true", help="only count what is timed")
    given = parser.parse_args(arguments)
    if given.again:
        print(f"{call_all(given.device, given.shapes)} choices timed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSEWRIGHT_CACHE_DIR"] = folder
        every = shapes(given.device)[: given.shapes]
        ways = (*WAYS[given.device], "chosen")
        print(f"{'µs':24}" + "".join(f"{way:>10}" for way in ways) + "   loses  winner")
        rows = []
        for shape in every:
            row = measure(shape, given.device, given.table)
            if row is not None:
                rows.append(row)
                print_row(row, ways)
        print_worst(rows, ways)
        print(f"{len(every) - len(rows)} shapes have one way alone")
        again = second_process(given.device, given.shapes)
        print(f"a second process: {again}")
    worst = max((row.loses("chosen") for row in rows), default=0.0)
    return int(worst > given.limit or again != "0 choices timed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
