"""Code compiled once for many sizes beside code compiled for each:

    python -m benchmarks.dynamic [--seconds N] [--threads N] [MODEL ...]

A row is a model at one size of its inputs: the median call of both, the error of the dynamic code
against eager, and how many times it was compiled so far. The geometric mean is of static time over
dynamic time; above 1, dynamic code is faster. The last lines compare what guards cost a call.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import fusewright
from benchmarks.measure import relative_error
from benchmarks.models import MODELS, Inputs, build, tensors_of
from benchmarks.sampling import take_turns

SIZES = ((1, 2), (2, 1), (2, 3))
"""By what batch and second dimension of the inputs, halved, are multiplied."""

FIXED = ("ViTModel", "ConvNextModel")
"""Models of images of one size: only the batch varies."""


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    sizes: str
    static: float
    dynamic: float
    error: float
    compilations: int

    @property
    def ratio(self) -> float:
        return self.static / self.dynamic

    def __str__(self) -> str:
        return (
            f"{self.model:28} {self.sizes:24} static {self.static * 1e3:9.2f} ms  "
            f"dynamic {self.dynamic * 1e3:9.2f} ms  ratio {self.ratio:.3f}  "
            f"error {self.error:.1e}  compiled {self.compilations}x"
        )


def resized(name: str, inputs: Inputs, batch: int, length: int) -> Inputs:
    """Inputs of another batch and length: batch and length are at least 2."""
    made = {}
    for key, tensor in inputs.items():
        size = list(tensor.shape)
        size[0] = size[0] * batch
        if tensor.dim() == 4:
            if name not in FIXED:
                size[2:] = [extent // 4 * (length + 1) for extent in size[2:]]
        elif tensor.dtype == torch.int64:
            size[1] = size[1] * length // 2
        if tensor.is_floating_point():
            made[key] = torch.randn(size)
        else:
            made[key] = tensor.flatten()[torch.arange(math.prod(size)) % tensor.numel()].view(size)
    return made


def measure(name: str, seconds: float) -> Iterator[Row]:
    """The rows of one model."""
    module, inputs = build(name)
    with torch.no_grad():
        dynamic = fusewright.compile(module, dynamic=True, options={"strict": True})
        for batch, length in SIZES:
            given = resized(name, inputs, batch, length)
            static = fusewright.compile(module, dynamic=False, options={"strict": True})
            found, wanted = tensors_of(dynamic(**given)), tensors_of(module(**given))
            calls: dict[str, Callable[[], Any]] = {
                "static": lambda run=static, given=given: run(**given),  # type: ignore[misc]
                "dynamic": lambda run=dynamic, given=given: run(**given),  # type: ignore[misc]
            }
            times = take_turns(calls, seconds)
            yield Row(
                model=name,
                sizes=" ".join("x".join(map(str, one.shape)) for one in given.values()),
                static=median(times["static"]),
                dynamic=median(times["dynamic"]),
                error=relative_error(found, wanted),
                compilations=len(fusewright.api.compilations(dynamic)),
            )


def guard_seconds(
    target: Callable[..., Any], dynamic: bool, *arguments: Any, **keywords: Any
) -> float:
    """What the guards of a program cost a call: the least of several compiles."""
    explained = (fusewright.explain(target, backend="eager", dynamic=dynamic) for _ in range(3))
    found = [each(*arguments, **keywords).guard_seconds for each in explained]
    return min(seconds for seconds in found if seconds is not None)


def guard_rows(names: list[str]) -> Iterator[str]:
    """Guards with symbolic sizes beside those without, for a function of two tensors and models."""
    programs: list[tuple[str, Any, dict[str, Any]]] = [
        ("two tensors", lambda x, y: x + y * 2, {"x": torch.randn(4, 5), "y": torch.randn(4, 5)})
    ]
    programs += [(name, *build(name)) for name in names]
    for name, target, inputs in programs:
        with torch.no_grad():
            symbolic, plain = (guard_seconds(target, each, **inputs) for each in (True, False))
        words = f"{symbolic * 1e6:.2f} us symbolic, {plain * 1e6:.2f} us static"
        yield f"guards of {name}: {words}, {symbolic / plain:.2f} times"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    ratios = []
    for name in options.models:
        for row in measure(name, options.seconds):
            ratios.append(row.ratio)
            print(row, flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean of static over dynamic: {mean:.3f}")
    for line in guard_rows(options.models):
        print(line, flush=True)


if __name__ == "__main__":
    main()
