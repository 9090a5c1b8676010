"""One architecture through one compiler, in a process of its own; `architectures` starts it and
reads the JSON that it prints.

    python -m benchmarks.measure_architecture COLUMN NAME

Graph breaks are allowed and counted. What was captured must compile, or the measurement fails.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from benchmarks.architectures import architecture, build
from benchmarks.compilers import EAGER, PEER
from benchmarks.measure import relative_error
from benchmarks.models import Inputs, tensors_of
from benchmarks.report import LARGEST_ERROR
from benchmarks.sampling import take_turns
from benchmarks.training import (
    LARGEST_GRADIENT_ERROR,
    WithLoss,
    gradient_error,
    gradients_of,
    weighted_mean,
)

SECONDS = 2.0
"""Time for the interleaved calls of one architecture."""

SEED = 1
"""Random operators draw the same numbers in every run."""

UNJUDGED_ERROR = 0.05
"""Relative error allowed where the model cannot run in float64 to say what of it is rounding."""

Compiled = Callable[..., Any]
Figures = dict[str, Any]

Compiler = Callable[[nn.Module], tuple[Compiled, Callable[[], Figures]]]
"""Compiles a module; gives what it tells afterwards as well."""


@dataclass(frozen=True, slots=True)
class Half:
    """What is done with a model: inference, or a training step."""

    compute: Callable[[nn.Module, Compiled, Inputs], list[Any]]
    """Runs a callable that computes a module: the tensors to compare."""

    error: Callable[[list[Any], list[Any]], float]
    """Of tensors found against those expected; infinite where they do not match."""

    largest_error: float


def outputs(module: nn.Module, call: Compiled, inputs: Inputs) -> list[torch.Tensor]:
    """All tensors that a call returns, without gradients."""
    with torch.no_grad():
        return tensors_of(call(**inputs))


INFERENCE = Half(outputs, relative_error, LARGEST_ERROR)
TRAINING = Half(gradients_of, gradient_error, LARGEST_GRADIENT_ERROR)


def measure(column: str, name: str, *, timed: bool = True) -> dict[str, Figures]:
    """Figures of `inference` and `training`, or why they are `missing`: the transformers library
    that is installed has no such model. Calls after the first are made where they are `timed`.
    """
    try:
        module, inputs = build(name)
    except LookupError as missing:
        return {"missing": {"because": str(missing)}}
    row = architecture(name)
    compiler = partial(_peer if column == PEER else _own, row.sizes_of_data)
    figures = {"inference": _attempt(compiler, INFERENCE, module, inputs, timed)}
    with_loss = WithLoss(module, weighted_mean).train(row.train_mode)
    figures["training"] = _attempt(compiler, TRAINING, with_loss, inputs, timed)
    return figures


def _attempt(
    compiler: Compiler, half: Half, module: nn.Module, inputs: Inputs, timed: bool
) -> Figures:
    """The figures, with `failure` in place of those that could not be had.

    Eager runs first, so that what the library sets up in a first call is there.
    """
    exact = copy.deepcopy(module).double()
    figures: Figures = {}
    try:
        expected = _seeded(half, module, module, inputs)
        start = time.perf_counter()
        compiled, graphs = compiler(module)
        found = _seeded(half, module, compiled, inputs)
        figures["first_call"] = time.perf_counter() - start
        figures |= graphs() | _errors(half, exact, inputs, expected, found)
        if timed:
            figures |= _speed(half, module, compiled, inputs)
    except Exception as error:
        figures["failure"] = f"{type(error).__name__}: {error}"
        figures["traceback"] = traceback.format_exc().splitlines()[-30:]
    return figures


def _own(sizes_of_data: bool, module: nn.Module) -> tuple[Compiled, Callable[[], Figures]]:
    """fusewright, whose backend must not fail, and what it tells afterwards."""
    import fusewright
    from fusewright.backends.registry import lookup_backend
    from fusewright.compiled import compiler_of
    from fusewright.inspect.explanation import explain_compiler

    def strict(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        backend = lookup_backend("fusewright")
        return backend(graph, example_inputs, options={"strict": True})  # type: ignore[call-arg]

    options = {"capture_data_dependent_sizes": sizes_of_data}
    compiled = fusewright.compile(module, backend=strict, options=options)

    def graphs() -> Figures:
        told = explain_compiler(compiler_of(compiled), type(module).__name__)
        return {
            "graphs": len(told.graphs),
            "breaks": [f"{one.location}: {one.what}" for one in told.breaks],
            "fallbacks": [str(one) for one in (*told.fallbacks, *told.limits)],
            "recompiles": len(told.recompiles),
            "stages": dict(told.stage_seconds),
        }

    return compiled, graphs


def _peer(sizes_of_data: bool, module: nn.Module) -> tuple[Compiled, Callable[[], Figures]]:
    """torch.compile with its default backend, and what it counted afterwards."""
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    config.capture_dynamic_output_shape_ops = config.capture_scalar_outputs = sizes_of_data
    counters.clear()
    compiled = torch.compile(module)

    def graphs() -> Figures:
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": [why for why, times in counters["graph_break"].items() for _ in range(times)],
            "fallbacks": [],
        }

    return compiled, graphs


def _seeded(half: Half, module: nn.Module, call: Compiled, inputs: Inputs) -> list[Any]:
    torch.manual_seed(SEED)
    return half.compute(module, call, inputs)


def _errors(
    half: Half, exact: nn.Module, inputs: Inputs, expected: list[Any], found: list[Any]
) -> Figures:
    """The error against eager; where that is too large, against eager in float64, and then eager's
    own error counts as well.
    """
    error = half.error(found, expected)
    figures = {"error": error, "allowed_error": half.largest_error}
    if error <= half.largest_error:
        return figures
    exact_inputs = {
        name: value.double() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    torch.set_default_dtype(torch.float64)
    try:
        referee = _seeded(half, exact, exact, exact_inputs)
    except RuntimeError as mixed:  # A model that asks for float32 tensors runs in float32 alone.
        return figures | {"no_referee": str(mixed), "allowed_error": UNJUDGED_ERROR}
    finally:
        torch.set_default_dtype(torch.float32)
    return {
        "error": half.error(found, referee),
        "allowed_error": max(half.largest_error, 2 * half.error(expected, referee)),
        "error_against_float32": error,
    }


def _speed(half: Half, module: nn.Module, compiled: Compiled, inputs: Inputs) -> Figures:
    """Median seconds a call, in eager and compiled."""
    calls: dict[str, Callable[[], Any]] = {
        EAGER: partial(half.compute, module, module, inputs),
        "compiled": partial(half.compute, module, compiled, inputs),
    }
    samples = take_turns(calls, SECONDS)
    return {
        "eager": statistics.median(samples[EAGER]),
        "call": statistics.median(samples["compiled"]),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
