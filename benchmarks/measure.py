"""One measurement in a process of its own; `compare` starts it and reads the JSON that it prints.

python -m benchmarks.measure cold COLUMN FRONT_END MODEL
python -m benchmarks.measure steady COLUMN,COLUMN… FRONT_END MODEL
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.compilers import OURS, PEER, compiler, own_traffic
from benchmarks.models import build, tensors_of
from benchmarks.peer_traffic import PeerTraffic

SECONDS = 12.0
"""Time for the interleaved calls of one model, all columns together."""

LEAST_ROUNDS = 15
MOST_ROUNDS = 300
SAMPLE_SECONDS = 0.002
"""A sample repeats calls that are shorter than this, so that reading the clock does not matter."""


def cold(column: str, front_end: str, model: str) -> dict[str, Any]:
    """Seconds of the first call: importing the compiler, compiling, running. Building the model is
    not in it.
    """
    module, inputs = build(model)
    start = time.perf_counter()
    compiled = compiler(column, front_end)(module)
    with torch.no_grad():
        compiled(**inputs)
    return {"first_call": time.perf_counter() - start}


def steady(columns: list[str], front_end: str, model: str) -> dict[str, Any]:
    """Median seconds a call, errors against eager, and kernel traffic, by column."""
    module, inputs = build(model)
    results: dict[str, dict[str, Any]] = {column: {} for column in columns}
    calls: dict[str, Callable[[], Any]] = {}

    with torch.no_grad():
        expected = tensors_of(module(**inputs))
        for column in columns:
            compiled = compiler(column, front_end)(module)
            calls[column] = lambda compiled=compiled: compiled(**inputs)
            results[column] |= _first_call(column, calls[column], expected)

        samples = take_turns(calls)
    for column, times in samples.items():
        results[column]["call"] = statistics.median(times)
        results[column]["rounds"] = len(times)
    return results


def _first_call(
    column: str, call: Callable[[], Any], expected: list[torch.Tensor]
) -> dict[str, Any]:
    """Run once: the error against eager, and what the generated kernels launch and move."""
    if column == PEER:
        traffic = PeerTraffic()
        with traffic.recording():
            output = call()
        counted: dict[str, Any] = {
            "launches": traffic.count_launches(call),
            "bytes": traffic.bytes,
            "extern_calls": traffic.extern_calls,
        }
    else:
        output = call()
        counted = own_traffic() if column == OURS else {}
    return {"error": relative_error(tensors_of(output), expected), **counted}


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest ‖found − expected‖ / ‖expected‖ of the tensors, in float64; infinite if they do
    not match.
    """
    if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
        return float("inf")

    errors = [0.0]
    for ours, theirs in zip(found, expected, strict=True):
        difference = (ours.double() - theirs.double()).norm()
        errors.append(float(difference / theirs.double().norm().clamp_min(1e-30)))
    return float("inf") if any(map(math.isnan, errors)) else max(errors)


def take_turns(
    calls: dict[str, Callable[[], Any]], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Seconds a call, sampled in turns that begin with another column each time."""
    repeats: dict[str, int] = {}
    for column, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[column] = max(1, round(SAMPLE_SECONDS / (time.perf_counter() - start)))

    samples: dict[str, list[float]] = {column: [] for column in calls}
    order = list(calls)
    end = time.perf_counter() + seconds
    for number in range(MOST_ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        order = [*order[1:], order[0]]
        for column in order:
            call = calls[column]
            start = time.perf_counter()
            for _ in range(repeats[column]):
                call()
            samples[column].append((time.perf_counter() - start) / repeats[column])
    return samples


def main() -> None:
    """Measure what the command line says, and print it."""
    kind, columns, front_end, model = sys.argv[1:]
    if kind == "cold":
        result = cold(columns, front_end, model)
    else:
        result = steady(columns.split(","), front_end, model)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
