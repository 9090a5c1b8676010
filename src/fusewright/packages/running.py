"""`fusewright run-package`: a package is loaded, called and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fusewright.packages.loading import Entry, load
from fusewright.packages.structure import Named


def run(path: Path, inputs: Path | None, entry: str, size: int, repeat: int) -> str:
    """The results of a package's call, and its times, as text. `inputs`: a file of arguments by
    name, which `torch.load` reads; random ones of this `size` where it varies, without.
    """
    began = time.perf_counter()
    package = load(path)
    loaded = time.perf_counter() - began
    function: Entry = getattr(package, entry)
    if inputs is None:
        arguments = function.random_arguments(size)
    else:
        arguments = torch.load(inputs, weights_only=True)
    times = []
    for _ in range(repeat + 1):
        began = time.perf_counter()
        result = function(**arguments)
        times.append(time.perf_counter() - began)
    shown = "".join(f"  {place}: {_shown(value)}\n" for place, value in _parts(result, "result"))
    return (
        f"{function}\n{shown}loaded in {loaded * 1e3:.1f} ms; first call {times[0] * 1e3:.3f} ms, "
        f"median of {repeat} {median(times[1:]) * 1e3:.3f} ms\n"
    )


def _parts(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The parts of a nested result, each with its place."""
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _parts(item, f"{place}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{place}.{key}" if isinstance(value, Named) else f"{place}[{key!r}]"
            yield from _parts(item, inner)
    else:
        yield place, value


def _shown(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    size = "×".join(map(str, value.shape)) or "one number"
    return f"{str(value.dtype).removeprefix('torch.')} of size {size}"
