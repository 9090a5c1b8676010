"""First calls of models on a GPU: how long a program waits for torch.compile and for fusewright.

    python -m benchmarks.first_calls [--mode infer|train|both] [--models NAME …] [--columns NAME …]
        [--seconds N]

Each first call has a process of its own, which has run the model eagerly once, so that libraries
are loaded and the GPU is awake. It is cold where all caches on disk are empty, Triton's too, and
warm in a second process that finds what the first has kept. The time includes importing the
compiler, and in training the first backward. For fusewright the stages of the warm call follow.
After `--seconds` nothing more is begun. The last lines are geometric means of our time by
torch.compile's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.compilers import OURS, PEER
from benchmarks.gpu import caches_in, compiled, one_call
from benchmarks.gpu_models import MODELS, build

COLUMNS = (PEER, OURS)
TEMPERATURES = ("cold", "warm")
PATIENCE = 300.0
"""Seconds that one process may take."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--mode", choices=["infer", "train", "both"], default="both")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--seconds", type=float, default=480.0, help="begin nothing after that")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no CUDA device")
        return 1
    begin = time.perf_counter()
    print(f"seconds of first calls, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'':20}" + "".join(f"{f'{c} {t}':>20}" for c in options.columns for t in TEMPERATURES),
        flush=True,
    )
    ratios: dict[str, list[float]] = {temperature: [] for temperature in TEMPERATURES}
    failures = 0
    for mode in ("infer", "train") if options.mode == "both" else (options.mode,):
        for name in options.models:
            if time.perf_counter() - begin > options.seconds:
                failures += 1
                print(f"{name} {mode}: left out after {options.seconds:.0f} s")
                continue
            row = {column: cold_and_warm(name, mode, column) for column in options.columns}
            print(row_of(name, mode, row), flush=True)
            failures += any(math.isnan(call["seconds"]) for calls in row.values() for call in calls)
            if len(row) == len(COLUMNS):
                for position, temperature in enumerate(TEMPERATURES):
                    peer, own = (row[column][position]["seconds"] for column in COLUMNS)
                    ratios[temperature] += [own / peer] if own / peer > 0 else []
    for temperature, values in ratios.items():
        if values:
            mean = statistics.geometric_mean(values)
            print(f"{temperature}: {OURS} takes {mean:.3f} of {PEER}'s time, {len(values)} models")
    return int(failures > 0)


def row_of(name: str, mode: str, row: dict[str, list[dict[str, Any]]]) -> str:
    """The seconds of a model, and the stages of our warm call."""
    calls = [call for calls in row.values() for call in calls]
    line = f"{f'{name} {mode}':20}" + "".join(f"{call['seconds']:20.2f}" for call in calls)
    stages = calls[-1].get("stages", {})
    parts = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items())
    said = [call["failure"] for call in calls if "failure" in call]
    return "\n  ".join([line, *([parts] if parts else []), *said])


def cold_and_warm(name: str, mode: str, column: str) -> list[dict[str, Any]]:
    """Both first calls of a column."""
    with tempfile.TemporaryDirectory() as folder:
        caches = caches_in(folder)
        return [in_a_process(name, mode, column, caches) for _ in TEMPERATURES]


def in_a_process(name: str, mode: str, column: str, caches: dict[str, str]) -> dict[str, Any]:
    """What `first_call` tells, in a process of its own."""
    program = (
        "import json, sys; from benchmarks.first_calls import first_call; "
        "print(json.dumps(first_call(*sys.argv[1:])))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, name, mode, column],
            cwd=Path(__file__).parents[1],
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"seconds": math.nan, "failure": f"{column}: took more than {PATIENCE:.0f} s"}
    if done.returncode:
        return {"seconds": math.nan, "failure": f"{column}: {done.stderr[-500:]}"}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def first_call(name: str, mode: str, column: str) -> dict[str, Any]:
    """Seconds of a first call, and of the stages of our compiler in it."""
    module, inputs = build(name, mode)
    one_call(module, module, inputs, mode)()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call = compiled(column, module, "default")
    one_call(call, module, inputs, mode)()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "stages": stages_of(call) if column == OURS else {}}


def stages_of(call: Any) -> dict[str, float]:
    """Seconds by stage, forward and backward together."""
    import fusewright

    explanation = fusewright.explain(call).history
    assert explanation is not None
    stages = dict(explanation.stage_seconds)
    for graph in explanation.graphs:
        if graph.backward is not None:
            stages |= {f"backward {k}": v for k, v in graph.backward.stage_seconds.items()}
    return stages


if __name__ == "__main__":
    sys.exit(main())
