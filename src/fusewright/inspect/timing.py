"""Times of a compiled graph's kernels and library calls, from its generated module."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import torch

from fusewright.records import record
from fusewright.runtime.compiled import CompiledGraph
from fusewright.runtime.loader import load_module, text_of_module
from fusewright.runtime.measuring import Input, Measured, Size, StepTimes, time_module

REPEATS: Final = 5


@record(kw_only=True)
class Timed:
    """How long one kernel, or one operator's calls, take in a call of the graph."""

    name: str
    seconds: float
    count: int
    """Launches or calls."""

    is_kernel: bool
    bytes: int
    """Bytes that a kernel's launches move; 0 for library calls."""

    copy_seconds: float | None = None
    """How long copies take that move as many bytes; None for library calls."""


def time_graph(compiled: CompiledGraph, repeats: int = REPEATS) -> tuple[float, list[Timed]]:
    """Seconds of a call on random inputs, and of its parts, the longest first. Raises what the call
    raises: random numbers may be no indices.
    """
    text = text_of_module(compiled.path)
    kernels, calls = _names(text)
    module = load_module(text, {})
    inputs: list[Size | Input] = module.variables["INPUTS"]
    hints = compiled.record.program.hints
    sizes = {
        parameter.name: int(hints[parameter.name])
        for parameter in inputs
        if isinstance(parameter, Size)
    }
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        measured = time_module(module.variables, inputs, kernels, calls, sizes, repeats)
    moved: dict[str, int] = {}
    for launch in compiled.record.launches:
        of_launch = launch.bytes_read + launch.bytes_written
        name = launch.choice if launch.choice in kernels else launch.kernel
        moved[name] = moved.get(name, 0) + of_launch
    return measured.seconds, _parts(measured, moved)


def _parts(measured: Measured, moved: Mapping[str, int]) -> list[Timed]:
    parts = [
        Timed(
            name=name,
            seconds=span.seconds,
            count=span.count,
            is_kernel=name in moved,
            bytes=moved.get(name, 0),
            copy_seconds=_copy_seconds(measured, span, moved[name]) if name in moved else None,
        )
        for name, span in measured.spans.items()
    ]
    return sorted(parts, key=lambda part: -part.seconds)


def _copy_seconds(measured: Measured, span: StepTimes, moved: int) -> float:
    return measured.copy_seconds(StepTimes(span.seconds, span.count, moved))


def _names(text: str) -> tuple[dict[str, str], list[str]]:
    """The names of kernels in a generated module, and of the variables that hold library calls."""
    values: dict[str, Any] = {"kernels": {}, "calls": []}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.If):
            for inner in statement.body:
                match inner:
                    case ast.Assign(targets=[ast.Name(id="kernels" | "calls" as name)]):
                        values[name] = ast.literal_eval(inner.value)
    return values["kernels"], values["calls"]
