"""Patterns that a compiler should fuse: eager, torch.compile and fusewright side by side.

    python -m benchmarks.patterns [--device cuda|cpu] [--mode forward|step|both] [--patterns NAME …]
        [--sizes l2 l3 memory] [--peer-patterns NAME …] [--processor-time]

A forward is one call without gradients; a step is a call and its backward. By column: the median
time, the columns taking turns; how many times as fast as eager; and the share of a copy's
bandwidth, measured first, that moving the least bytes in that time comes to. These are, for a
forward, inputs and result once each; for a step, also the result's gradient, the inputs a second
time, and their gradients. `--processor-time`: on a CPU, processor time of one thread, the least of
the turns, where other processes hold the cores. The error is relative, against float64. The exit
status is 1 if our column failed, or strayed from float64 more than twice as far as eager.

`--sizes` measures inputs that fit into a cache of a CPU or into none, one size after the other.
Compiling takes torch.compile most of a run; `--peer-patterns` says which have its column.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.compilers import EAGER, OURS, PEER, peer_is_available
from benchmarks.fused_patterns import PATTERNS, Pattern
from benchmarks.sampling import PROCESSOR_TIME, keep_freed_memory, take_turns, typical

COLUMNS = (EAGER, PEER, OURS)
ROWS = {"cuda": 32768, "cpu": 1024}
"""How large inputs are, unless told: on a GPU above its cache."""

SIZES = {"l2": 32, "l3": 512, "memory": 4096}
"""Rows by what holds them on a CPU, at 8 KiB a row, of which a forward touches two or three, and a
step five to eight: caches have 1 MiB a core at the second level and 32 MiB at the third (AMD EPYC).
"""

NEAR = 0.95
"""The part of the speed of the better of eager and torch.compile that is as good as theirs."""

DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}
COPIED_BYTES = {"cuda": 1 << 29, "cpu": 1 << 26}
ROUNDS = 9
ROUND_SECONDS = 0.02
CPU_SECONDS = 1.0
"""Time for the turns of one pattern."""

TOLERANCES = {torch.bfloat16: 1e-3, torch.float32: 1e-6}
"""An error that is right however small eager's is."""


@dataclass(slots=True)
class Measured:
    """One column of a pattern's row."""

    column: str
    seconds: float = math.nan
    error: float = math.nan
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A pattern forward, or with its backward."""

    name: str
    mode: str
    least_bytes: int
    columns: tuple[Measured, ...]
    size: str = ""

    def column(self, name: str) -> Measured | None:
        return next((column for column in self.columns if column.column == name), None)

    def lines(self, bandwidth: float) -> Iterator[str]:
        """A line a column; `bandwidth`: bytes a second of a copy."""
        eager = self.column(EAGER)
        for place, column in enumerate(self.columns):
            head = f"{'' if place else self.name:30} {self.mode:8} {column.column:14}"
            if column.failure:
                yield f"{head} failed: {column.failure}"
                continue
            speed = eager.seconds / column.seconds if eager else math.nan
            share = self.least_bytes / column.seconds / bandwidth
            yield (
                f"{head} {1e3 * column.seconds:9.3f} {speed:7.2f} {self.least_bytes / 2**20:8.1f} "
                f"{share:7.2f} {column.error:9.1e}"
            )

    @property
    def share_of_best(self) -> float:
        """Our speed over that of the best of the others; infinite where either is missing."""
        ours = self.column(OURS)
        others = [column.seconds for column in self.columns if column.column != OURS]
        known = [seconds for seconds in others if not math.isnan(seconds)]
        if ours is None or math.isnan(ours.seconds) or not known:
            return math.inf
        return min(known) / ours.seconds

    def is_bad(self, tolerance: float) -> bool:
        """Whether our column failed, or is wrong."""
        ours, eager = self.column(OURS), self.column(EAGER)
        if ours is None or (math.isnan(ours.error) and not ours.failure):
            return False
        bound = max(2 * eager.error, tolerance) if eager and not eager.failure else tolerance
        return bool(ours.failure) or ours.error > bound


HEAD = (
    f"{'pattern':30} {'mode':8} {'':14} {'ms':>9} {'speed':>7} {'MiB':>8} {'of copy':>7} "
    f"{'error':>9}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", choices=list(ROWS), default="cpu")
    parser.add_argument("--mode", choices=["forward", "step", "both"], default="both")
    parser.add_argument("--patterns", nargs="+", choices=list(PATTERNS), default=list(PATTERNS))
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--rows", type=int, help="how large inputs are")
    chosen.add_argument("--sizes", nargs="+", choices=list(SIZES), help="what inputs fit into")
    parser.add_argument(
        "--peer-patterns",
        nargs="+",
        choices=list(PATTERNS),
        help="those with torch.compile's column",
    )
    parser.add_argument("--processor-time", action="store_true", help="of one thread, least")
    options = parser.parse_args(arguments)
    if options.processor_time:
        os.environ[PROCESSOR_TIME] = "1"
        torch.set_num_threads(1)
    keep_freed_memory()
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device")
        return 1
    columns = list(options.columns)
    if PEER in columns and device == "cpu" and not peer_is_available():
        columns.remove(PEER)
    bandwidth = copy_bandwidth(device)
    print(f"torch {torch.__version__}, {device}: a copy moves {bandwidth / 1e9:.0f} GB/s\n{HEAD}")
    sizes = {size: SIZES[size] for size in options.sizes or ()}
    rows = []
    for size, count in (sizes or {"": options.rows or ROWS[device]}).items():
        if size:
            print(f"\n{size}: {count} rows")
        rows += measured_rows(options, columns, count, size, bandwidth)
    for size in dict.fromkeys(row.size for row in rows):
        own = [row for row in rows if row.size == size]
        print("\n".join(summary(own, columns, bandwidth)))
    return int(any(row.is_bad(TOLERANCES[DTYPES[device]]) for row in rows))


def measured_rows(
    options: argparse.Namespace, columns: Sequence[str], count: int, size: str, bandwidth: float
) -> list[Row]:
    """The rows of one size, each printed once it is there."""
    rows = []
    for name in options.patterns:
        has_peer = options.peer_patterns is None or name in options.peer_patterns
        own = [column for column in columns if column != PEER or has_peer]
        for mode in ("forward", "step") if options.mode == "both" else (options.mode,):
            if mode == "step" and not PATTERNS[name].has_gradient:
                continue
            row = replace(measure(name, mode, own, options.device, count), size=size)
            rows.append(row)
            print("\n".join(row.lines(bandwidth)), flush=True)
    return rows


def summary(rows: list[Row], columns: Sequence[str], bandwidth: float) -> Iterator[str]:
    """For each mode and column of rows of one size, geometric means over the patterns that both it
    and eager ran; then the rows in which ours is slower than the best of the others.
    """
    for mode in dict.fromkeys(row.mode for row in rows):
        for name in columns:
            pairs = [
                (row, column)
                for row in rows
                if row.mode == mode and (column := row.column(name)) and not column.failure
            ]
            if not pairs:
                continue
            speeds = [
                eager.seconds / column.seconds
                for row, column in pairs
                if (eager := row.column(EAGER)) and not eager.failure
            ]
            shares = [row.least_bytes / column.seconds / bandwidth for row, column in pairs]
            speed = statistics.geometric_mean(speeds) if speeds else math.nan
            yield (
                f"{rows[0].size:6} {mode:8} {name:14} speed {speed:.2f}, share of a copy "
                f"{statistics.geometric_mean(shares):.2f}, over {len(pairs)} patterns"
            )
    for row in rows:
        if row.share_of_best < NEAR:
            yield f"{row.size:6} {row.mode:8} {row.name}: {row.share_of_best:.2f} of the best"


# Measuring ----------------------------------------------------------------------------------------


def measure(name: str, mode: str, columns: Sequence[str], device: str, rows: int) -> Row:
    """A row of all columns."""
    pattern = PATTERNS[name]
    torch.manual_seed(0)
    inputs = [placed(value, device, mode) for value in pattern.make(rows)]
    run = stepped if mode == "step" else forward
    slope = slope_of(pattern, inputs)
    exact = None if pattern.is_drawn else run(pattern.function, *in_double(inputs, slope))
    measured, calls = [], {}
    for column in columns:
        result = Measured(column)
        measured.append(result)
        try:
            function = compiled(column, pattern)
            tensors = run(function, inputs, slope)
            if exact is not None:
                result.error = relative_error(tensors, exact)
            calls[column] = lambda function=function: run(function, inputs, slope)
        except Exception as error:
            result.failure = f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
    times = {} if not calls else timed(calls, device)
    for result in measured:
        if result.column in times:
            result.seconds = typical(times[result.column])
    torch.compiler.reset()
    return Row(name, mode, least_bytes(inputs, slope, mode), tuple(measured))


def placed(value: Tensor, device: str, mode: str) -> Tensor:
    """An input on the device; for a step, a leaf."""
    if not value.is_floating_point():
        return value.to(device)
    return value.to(device, DTYPES[device]).requires_grad_(mode == "step")


def in_double(inputs: Sequence[Tensor], slope: Tensor) -> tuple[list[Tensor], Tensor]:
    """The same in float64, leaves as leaves."""
    wide = [
        value.detach().double().requires_grad_(value.requires_grad)
        if value.is_floating_point()
        else value
        for value in inputs
    ]
    return wide, slope.double() if slope.is_floating_point() else slope


def slope_of(pattern: Pattern, inputs: Sequence[Tensor]) -> Tensor:
    """A gradient for the result, and as large as the result."""
    with torch.no_grad():
        result = pattern.function(*inputs)
    return torch.randn_like(result) if result.is_floating_point() else result


def compiled(column: str, pattern: Pattern) -> Callable[..., Tensor]:
    """What a column calls."""
    if column == PEER:
        return torch.compile(pattern.function, fullgraph=True)
    if column == OURS:
        import fusewright

        return fusewright.compile(pattern.function, fullgraph=True, options={"strict": True})
    return pattern.function


def forward(function: Callable[..., Tensor], inputs: Sequence[Tensor], _: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [function(*inputs)]


def stepped(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], slope: Tensor
) -> list[Tensor]:
    """The result and the gradients."""
    for value in inputs:
        value.grad = None
    result = function(*inputs)
    result.backward(slope)
    return [result.detach(), *(value.grad for value in inputs if value.grad is not None)]


def relative_error(tensors: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest ‖tensor - exact‖ / ‖exact‖; of integers, the part that differs."""
    errors = []
    for tensor, other in zip(tensors, exact, strict=True):
        if not tensor.is_floating_point():
            errors.append(float((tensor != other).double().mean()))
            continue
        norm = float(other.norm())
        errors.append(float((tensor.double() - other).norm()) / (norm or 1.0))
    return math.inf if any(map(math.isnan, errors)) else max(errors)


def least_bytes(inputs: Sequence[Tensor], slope: Tensor, mode: str) -> int:
    """The fewest bytes that a pattern must move; the slope is as large as the result."""
    read, written = sum(value.nbytes for value in inputs), slope.nbytes
    if mode == "forward":
        return read + written
    gradients = sum(value.nbytes for value in inputs if value.requires_grad)
    return read + written + slope.nbytes + read + gradients


def copy_bandwidth(device: str) -> float:
    """Bytes that a copy of a large tensor reads and writes in a second."""
    source = torch.zeros(COPIED_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(source)}
    times = timed(calls, device)
    return 2 * source.nbytes / statistics.median(times["copy"])


def timed(calls: dict[str, Callable[[], Any]], device: str) -> dict[str, list[float]]:
    """Seconds a call, sampled in turns."""
    return on_gpu(calls) if device == "cuda" else take_turns(calls, CPU_SECONDS)


def on_gpu(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds a call by the GPU's events, sampled in turns; as many calls a sample as keep the GPU
    busy while the host goes ahead.
    """
    counts = {}
    for column, call in calls.items():
        by_events(call, 2)
        counts[column] = max(5, min(100, int(ROUND_SECONDS / max(by_events(call, 5), 1e-6))))
    samples: dict[str, list[float]] = {column: [] for column in calls}
    for _ in range(ROUNDS):
        for column, call in calls.items():
            samples[column].append(by_events(call, counts[column]))
    return samples


def by_events(call: Callable[[], Any], count: int) -> float:
    """Seconds a call, the mean of `count` calls in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / count


if __name__ == "__main__":
    start = time.perf_counter()
    status = main()
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(status)
