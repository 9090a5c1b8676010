"""The most memory that a call of each model holds at one time, eager and compiled, as torch's
profiler counts it: MiB beside what was there before the call, gradients among them.

    python -m benchmarks.peaks [--models NAME ...] [--modes infer train]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import fusewright
from benchmarks.models import MODELS, Inputs, build
from benchmarks.training import WithLoss

MODES = ("infer", "train")
WARM_UPS = 2
"""Calls before the one that is measured: the first compiles, and may measure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each model and mode; 1 if one holds more compiled than eagerly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peaks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    given = parser.parse_args(arguments)
    is_above = False
    print(f"{'model':28} {'mode':6} {'eager':>8} {'compiled':>8}  MiB")
    for model in given.models:
        for mode in given.modes:
            eager, compiled = peaks(*build(model), mode)
            is_above |= compiled > eager
            print(f"{model:28} {mode:6} {eager / 2**20:8.1f} {compiled / 2**20:8.1f}", flush=True)
    return int(is_above)


def peaks(module: nn.Module, inputs: Inputs, mode: str) -> tuple[int, int]:
    """The most bytes that a call of a model holds, eagerly and compiled. `mode`: `infer`, or
    `train`, a step in train mode.
    """
    if mode == "train":
        module = WithLoss(module).train()
    eager = _peak(module, module, inputs, mode)
    own = copy.deepcopy(module)
    return eager, _peak(own, fusewright.compile(own, options={"strict": True}), inputs, mode)


def _peak(module: nn.Module, call: Callable[..., Any], inputs: Inputs, mode: str) -> int:
    def step() -> None:
        if mode == "train":
            call(**inputs).backward()
        else:
            with torch.no_grad():
                call(**inputs)

    for _ in range(WARM_UPS):
        step()
        module.zero_grad(set_to_none=True)
    return peak_bytes(step)


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that are allocated on the CPU at one time while `run` runs, beside those that
    were before.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    rows = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((row.start_ns(), row.nbytes()) for row in rows if row.name() == "[memory]")
    held = most = 0
    for _, count in changes:
        held += count
        most = max(most, held)
    return most


if __name__ == "__main__":
    raise SystemExit(main())
