"""One measurement in a process of its own; `compare` starts it and reads the JSON that it prints.

python -m benchmarks.measure cold COLUMN FRONT_END MODEL
python -m benchmarks.measure steady COLUMN,COLUMN… FRONT_END MODEL
python -m benchmarks.measure cold-step COLUMN FRONT_END MODEL DROPOUT
python -m benchmarks.measure steady-steps COLUMN,COLUMN… FRONT_END MODEL DROPOUT
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.compilers import OURS, PEER, compiler, own_traffic
from benchmarks.models import build, tensors_of
from benchmarks.peer_traffic import PeerTraffic
from benchmarks.sampling import take_turns, typical
from benchmarks.training import cold_step, steady_steps


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
    """Seconds a call (`typical`), errors against eager, and kernel traffic, by column."""
    module, inputs = build(model)
    results: dict[str, dict[str, Any]] = {column: {} for column in columns}
    calls: dict[str, Callable[[], Any]] = {}

    with torch.no_grad():
        expected = tensors_of(module(**inputs))
        for column in columns:
            compiled = compiler(column, front_end)(module)
            calls[column] = partial(compiled, **inputs)
            results[column] |= _first_call(column, calls[column], expected)

        samples = take_turns(calls)
    for column, times in samples.items():
        results[column]["call"] = typical(times)
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


def main() -> None:
    """Measure what the command line says, and print it."""
    kind, columns, *model = sys.argv[1:]
    match kind:
        case "cold":
            result = cold(columns, *model)
        case "steady":
            result = steady(columns.split(","), *model)
        case "cold-step":
            result = cold_step(columns, *model)
        case "steady-steps":
            result = steady_steps(columns.split(","), *model)
        case _:
            raise ValueError(f"no such measurement: {kind}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
