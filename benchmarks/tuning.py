"""Models compiled by rule and tuned ahead of time, side by side in one process.

    python -m benchmarks.tuning [--device cpu|cuda] [--models NAME …] [--seconds S]
        [--mode infer|train] [--cuda-graphs] [--trials]

By model: the median time of a call of either, taking turns; the best ones' ratio, which other
processes disturb least; seconds that tuning took, with empty caches of its own; how many kernels
were tried and how many are other ones now, and the largest arguments. `--trials` prints what won,
and by how much. The exit status is 1 where tuning made a model slower by more than `TOLERANCE`, or
where results differ by more than reduced precision explains.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import gpu, gpu_models, models
from benchmarks.sampling import take_turns

TOLERANCE = 0.03
"""Part of a time that is taken for noise."""

MODES = {"by rule": "default", "tuned": "max-autotune-no-cudagraphs"}
REPLAYED_MODES = {"by rule": "reduce-overhead", "tuned": "max-autotune"}
"""Where all is replayed as CUDA graphs, so that launching takes no time."""

HEAD = "model        by rule ms  tuned ms   speed  tuning s  kernels  changed  arguments MiB"


@dataclass(slots=True)
class Row:
    """What was measured of one model."""

    model: str
    samples: dict[str, list[float]]
    report: Any
    """What `explain` says of tuning."""

    differs: float

    @property
    def speed(self) -> float:
        return min(self.samples["by rule"]) / min(self.samples["tuned"])

    def __str__(self) -> str:
        rule, tuned = (1e3 * statistics.median(self.samples[column]) for column in MODES)
        trials = [trial for trial in self.report.trials if not trial.untried_because]
        changed = sum(trial.decision.winner != 0 for trial in trials)
        return (
            f"{self.model:12} {rule:10.3f} {tuned:9.3f} {self.speed:7.3f} "
            f"{self.report.seconds:9.1f} {len(trials):8} {changed:8} "
            f"{self.report.peak_bytes / 2**20:14.1f}"
        )


def measure(name: str, device: str, mode: str, seconds: float, modes: dict[str, str]) -> Row:
    """Compile a model both ways, and let the calls take turns."""
    import fusewright

    if device == "cuda":
        module, inputs = gpu_models.build(name, mode)
    else:
        module, inputs = models.build(name)
    calls: dict[str, Callable[[], Any]] = {}
    compiled: dict[str, Any] = {}
    for column, compile_mode in modes.items():
        options = {"strict": True, "eager_where_faster": False}
        compiled[column] = fusewright.compile(module, mode=compile_mode, options=options)
        calls[column] = gpu.one_call(compiled[column], module, inputs, mode)
    for call in calls.values():  # Graphs are recorded at the second call or the third.
        call(), call()
    results = {column: [t.detach().clone() for t in call()] for column, call in calls.items()}
    if device == "cuda":
        samples = {column: [ms / 1e3] for column, ms in gpu.in_turns(calls).items()}
    else:
        samples = take_turns(calls, seconds)
    report = fusewright.explain(compiled["tuned"]).history.tuning
    differs = max(map(_difference, results["by rule"], results["tuned"]), default=0.0)
    return Row(name, samples, report, differs)


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """‖one − other‖ / ‖one‖."""
    if not one.is_floating_point():
        return float(not torch.equal(one, other))
    return float((one.double() - other.double()).norm() / one.double().norm().clamp(min=1e-30))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--mode", choices=["infer", "train"], default="infer", help="on a GPU")
    parser.add_argument("--models", nargs="+", default=None)
    parser.add_argument("--seconds", type=float, default=6.0, help="of turns, on the CPU")
    parser.add_argument("--cuda-graphs", action="store_true", help="replay both on a GPU")
    parser.add_argument("--trials", action="store_true", help="print what won")
    options = parser.parse_args(arguments)
    if options.mode == "train" and options.device == "cpu":
        parser.error("--mode train is for --device cuda")
    is_gpu = options.device == "cuda"
    known = gpu_models.names_for(options.mode) if is_gpu else list(models.MODELS)
    bad = 0
    print(HEAD, flush=True)
    folder = tempfile.mkdtemp(prefix="tuning_")  # Kernels of one model may serve another.
    os.environ["FUSEWRIGHT_CACHE_DIR"] = folder
    for name in options.models or known:
        begin = time.perf_counter()
        modes = REPLAYED_MODES if options.cuda_graphs else MODES
        row = measure(name, options.device, options.mode, options.seconds, modes)
        print(f"{row}   ({time.perf_counter() - begin:.0f} s)", flush=True)
        if options.trials:
            print(row.report, flush=True)
        allowed = 3e-2 if is_gpu else 1e-4
        if row.speed < 1 - TOLERANCE or row.differs > allowed:
            bad += 1
            print(f"  slower, or other results: {row.speed:.3f}, {row.differs:.1e}", flush=True)
        gc.collect()
        if is_gpu:
            torch.cuda.empty_cache()
    shutil.rmtree(folder)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
