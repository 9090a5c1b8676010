"""What a call costs where kernels are small: microseconds beside eager, and where ours go.

    python -m benchmarks.calls [PROGRAM ...] [--mode inference|train ...]
        [--sizes static|dynamic ...] [--target native|python] [--seconds N] [--threads N]
        [--peers] [--json FILE]

"hook" is a call whose graph does nothing, without its guards; "around" is what generated code is
called through: the graph's arguments, and in training autograd's nodes and its engine. The other
parts are those of generated Python, forward and backward, measured with a clock after each
statement, so that they are a little more than they cost, and more than in a native plan; `--target`
says which of the two `fusewright` is. `--peers` adds torch.compile, also with its C++ wrapper.
`--json` keeps the rows in a file, with the date and what they were measured on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import fx

import fusewright
from benchmarks.call_parts import PARTS, parts_of_a_call
from benchmarks.call_programs import PROGRAMS, CallProgram
from benchmarks.compare import environment
from benchmarks.compilers import EAGER, OURS, PEER
from benchmarks.sampling import take_turns
from fusewright.compilation import Compilation
from fusewright.config import TARGETS, Options
from fusewright.runtime.compiled import Record

CPP_WRAPPER = f"{PEER}, C++"
AROUND = ("hook", "guards", "around")
ROUNDS = 60
"""Calls whose parts are measured; their median counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One program under one mode, with static or dynamic sizes; times are microseconds a call."""

    program: str
    mode: str
    sizes: str
    launches: int
    extern_calls: int
    times: dict[str, float]
    """By column: eager, fusewright, and the peers."""

    parts: dict[str, float]


def measure(name: str, mode: str, sizes: str, *, target: str, seconds: float, peers: bool) -> Row:
    """The row of one program."""
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    dynamic = sizes == "dynamic"
    compile_own = partial(fusewright.compile, program.module, dynamic=dynamic)
    compiled = compile_own(options={"strict": True, "target": target})
    calls = {EAGER: _step(program, program.module, mode), OURS: _step(program, compiled, mode)}
    for column, options in _peers().items() if peers else ():
        torch.compiler.reset()
        other = torch.compile(program.module, dynamic=dynamic, options=options)
        calls[column] = _step(program, other, mode)
        calls[column]()
    samples = take_turns(calls, seconds)
    times = {column: 1e6 * median(found) for column, found in samples.items()}
    (compilation,) = fusewright.api.compilations(compiled)
    records = _records(compilation)
    parts = _around(program, mode, dynamic, seconds)
    in_python = {"strict": True, "target": "python"}
    parts |= parts_of_a_call(lambda: _step(program, compile_own(options=in_python), mode), ROUNDS)
    parts["around"] = max(0.0, times[OURS] - sum(parts.values()))
    return Row(
        program=name,
        mode=mode,
        sizes=sizes,
        launches=sum(record.launch_count for record in records),
        extern_calls=sum(len(record.extern_calls) for record in records),
        times=times,
        parts=parts,
    )


def _records(compilation: Compilation) -> list[Record]:
    """What the stages made of the graph, and of its backward half in training."""
    assert compilation.record is not None
    records = [compilation.record]
    if compilation.training is not None and compilation.training.backward is not None:
        records.append(compilation.training.backward.record)
    return records


def _peers() -> dict[str, dict[str, Any]]:
    """The options of torch.compile by column."""
    return {PEER: {}, CPP_WRAPPER: {"cpp_wrapper": True}}


def _step(program: CallProgram, target: Callable[..., Any], mode: str) -> Callable[[], Any]:
    """A call, or in training also the gradients of its first result."""
    if mode == "inference":
        return torch.no_grad()(partial(target, *program.inputs))
    leaves = [program.inputs[0], *program.module.parameters()]
    with torch.no_grad():
        seed = torch.ones_like(_first(program.module(*program.inputs)))

    def train() -> Any:
        return torch.autograd.grad(_first(target(*program.inputs)), leaves, seed)

    return train


def _first(result: Any) -> torch.Tensor:
    found = result[0] if isinstance(result, tuple) else result
    assert isinstance(found, torch.Tensor)
    return found


def _around(program: CallProgram, mode: str, dynamic: bool, seconds: float) -> dict[str, float]:
    """What the hook and the guards of one call take."""
    explained = fusewright.explain(program.module, backend=_known_results, dynamic=dynamic)
    with torch.set_grad_enabled(mode == "train"):
        guards = 1e6 * (explained(*program.inputs).guard_seconds or 0.0)
        hollow = fusewright.compile(program.module, backend=_known_results, dynamic=dynamic)
        samples = take_turns({"hook": partial(hollow, *program.inputs)}, seconds / 4)
    return {"hook": max(0.0, 1e6 * median(samples["hook"]) - guards), "guards": guards}


def _known_results(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose code returns what the graph returned when it was first run."""
    results: list[Any] = []

    def run(*arguments: Any) -> Any:
        if not results:
            results.append(graph(*arguments))
        return results[0]

    return run


def table(rows: Sequence[Row]) -> Table:
    """The rows as people read them."""
    columns = list(rows[0].times)
    shown = Table("program", "mode", "sizes", title="microseconds a call")
    for heading in ("kernels", "library", *columns, *AROUND, *PARTS):
        shown.add_column(heading, justify="right")
    for row in rows:
        parts = (f"{row.parts[part]:.1f}" for part in (*AROUND, *PARTS))
        shown.add_row(
            row.program,
            row.mode,
            row.sizes,
            str(row.launches),
            str(row.extern_calls),
            *(f"{row.times[column]:.1f}" for column in columns),
            *parts,
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--mode", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--target", choices=TARGETS, default=Options().target)
    parser.add_argument("--seconds", type=float, default=4.0, help="for the calls of one row")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if unknown := set(options.programs) - set(PROGRAMS):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = [
        measure(
            name,
            mode,
            sizes,
            target=options.target,
            seconds=options.seconds,
            peers=options.peers,
        )
        for name in options.programs or PROGRAMS
        for mode in options.mode
        for sizes in options.sizes
    ]
    Console(width=220).print(table(rows))
    if options.json:
        kept: dict[str, Any] = {"date": str(date.today()), **environment()}
        kept["rows"] = [asdict(row) for row in rows]
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


MODES = ["inference", "train"]
SIZES = ["static", "dynamic"]

if __name__ == "__main__":
    sys.exit(main())
