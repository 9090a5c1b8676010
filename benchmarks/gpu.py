"""Models on a GPU: eager, torch.compile and fusewright side by side.

    python -m benchmarks.gpu [--mode infer|train|both] [--models NAME …] [--columns NAME …]
        [--compile-mode reduce-overhead|max-autotune|…] [--ahead JOBS]

Inference is in bfloat16, of GPT-2 and Llama also of one token behind a text; a training step is
forward, loss and backward under autocast to bfloat16.
By column: the median time by the GPU's own events, the columns taking turns; the time until a call
returns, its work not done yet; the first call, with empty caches on disk; memory that a call needs
beside parameters and inputs; kernels that it launches; for fusewright, what its own kernels move,
and the bandwidth that they reach by that, as a share of a copy's; the relative error against
float64 of the results, or of all gradients together. (`benchmarks.first_calls` has cold and warm
first calls.) A row is printed when it is known, with the seconds that it took, and all at the end.
A model that is not begun within `--seconds` is named as left out. With `--ahead`, all is compiled
before that, so many processes at once, and first calls find it on disk. The exit status is 1 if one
was, if our column failed, or strayed from float64 more than twice as far as eager.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.compilers import EAGER, OURS, PEER
from benchmarks.gpu_models import build, names_for
from benchmarks.models import tensors_of
from benchmarks.patterns import copy_bandwidth

COLUMNS = (EAGER, PEER, OURS)
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
SECONDS = 480.0
"""After this no model is begun: one takes some 20 to 60, most of them torch.compile's."""

ROUNDS = 12
ROUND_SECONDS = 0.05
"""How long a column's turn takes, about."""


@dataclass(slots=True)
class Measured:
    """One column of a model's row."""

    column: str
    call: float = math.nan
    """Milliseconds of a call, by events."""

    host: float = math.nan
    """Milliseconds until a call returns."""

    first: float = math.nan
    """Seconds of the first call."""

    memory: float = math.nan
    """MiB that a call needs at most."""

    launches: int | None = None
    """None where the profiler does not work."""

    moved: float = math.nan
    """MiB that our own kernels read and write in a call."""

    share: float = math.nan
    """The bandwidth that they reach by that, as a share of a copy's."""

    error: float = math.nan
    failure: str = ""

    def text(self, eager: float) -> str:
        """The figures in columns; `eager`: eager's time."""
        if self.failure:
            return f"{self.column:14} failed: {self.failure}"
        return (
            f"{self.column:14} {self.call:9.3f} {eager / self.call:7.2f} {self.host:9.3f} "
            f"{self.first:8.2f} {self.memory:8.0f} {self.launches or '?':>8} "
            f"{_or_nothing(self.moved, '8.0f')} {_or_nothing(self.share, '5.2f')} "
            f"{self.error:10.2e}"
        )


HEAD = (
    f"{'model':12} {'':14} {'ms':>9} {'speed':>7} {'host ms':>9} {'first s':>8} {'MiB':>8} "
    f"{'kernels':>8} {'moved':>8} {'share':>5} {'error':>10}"
)


def _or_nothing(figure: float, form: str) -> str:
    """A figure, or as much space where there is none."""
    return " " * len(format(0.0, form)) if math.isnan(figure) else format(figure, form)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--mode", choices=["infer", "train", "both"], default="infer")
    parser.add_argument("--models", nargs="+", choices=names_for("infer"), default=None)
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--compile-mode", choices=COMPILE_MODES, default="default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no model after that")
    parser.add_argument("--ahead", type=int, metavar="JOBS", help="compile all first, in processes")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    if not torch.cuda.is_available():
        print("no CUDA device")
        return 1
    modes = ("infer", "train") if options.mode == "both" else (options.mode,)
    if options.ahead:
        compile_ahead(modes, options)
        print(f"compiled ahead in {time.perf_counter() - begin:.0f} s", flush=True)
        begin = time.perf_counter()
    rows: list[str] = []
    bad = 0
    for mode in modes:
        rows += [f"-- {mode}, {torch.cuda.get_device_name()}, torch {torch.__version__}", HEAD]
        print("\n".join(rows[-2:]), flush=True)
        for name in options.models or names_for(mode):
            if name not in names_for(mode):
                continue
            start = time.perf_counter()
            if start - begin > options.seconds:
                columns = [Measured(OURS, failure=f"left out after {options.seconds:.0f} s")]
            else:
                columns = measure(name, mode, options.columns, options.compile_mode)
            shown = list(row_of(name, columns))
            print("\n".join(shown), f"  ({time.perf_counter() - start:.0f} s)", flush=True)
            rows += shown
            bad += is_bad(columns)
    print("\n" + "\n".join(rows))
    return int(bad > 0)


def compile_ahead(modes: Sequence[str], options: argparse.Namespace) -> None:
    """Leave on disk what all columns compile, `options.ahead` processes at once."""
    choices = [
        (name, mode, column)
        for mode in modes
        for name in options.models or names_for(mode)
        if name in names_for(mode)
        for column in options.columns
        if column != EAGER
    ]
    program = "import sys; from benchmarks.gpu import only_compile; only_compile(*sys.argv[1:])"
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "2"}  # Of each process: there are many.

    def run(choice: tuple[str, ...]) -> None:
        subprocess.run(
            [sys.executable, "-c", program, *choice, options.compile_mode],
            cwd=Path(__file__).parents[1],
            env={**os.environ, **threads},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,  # What fails here fails in its turn, too, and is told there.
        )

    with ThreadPoolExecutor(options.ahead) as pool:
        list(pool.map(run, choices))


def only_compile(name: str, mode: str, column: str, compile_mode: str) -> None:
    """Call a compiled model until its kernels are on disk."""
    module, inputs = build(name, mode)
    call = one_call(compiled(column, module, compile_mode), module, inputs, mode)
    for _ in range(2):
        call()
    torch.cuda.synchronize()


def row_of(name: str, columns: list[Measured]) -> Iterator[str]:
    """One line a column."""
    eager = next((one.call for one in columns if one.column == EAGER), math.nan)
    for number, column in enumerate(columns):
        yield f"{'' if number else name:12} {column.text(eager)}"


def is_bad(columns: list[Measured]) -> bool:
    """Whether our column failed, or is wrong."""
    eager = next((one.error for one in columns if one.column == EAGER), math.nan)
    ours = [one for one in columns if one.column == OURS]
    return any(one.failure or not one.error <= max(2 * eager, 1e-3) for one in ours)


def measure(name: str, mode: str, wanted: Sequence[str], compile_mode: str) -> list[Measured]:
    """All columns of one model; `compile_mode` is what compilers are asked for."""
    try:
        module, inputs = build(name, mode)
        exact = exact_results(module, inputs, mode)
    except Exception as error:
        return [Measured(column, failure=said(error)) for column in wanted]
    columns, calls = [], {}
    for column in wanted:
        measured = Measured(column)
        columns.append(measured)
        try:
            call = compiled(column, module, compile_mode)
            calls[column] = one_call(call, module, inputs, mode)
            look_at(measured, call, calls[column], exact)
        except Exception as error:
            measured.failure = said(error)
            calls.pop(column, None)
    times = in_turns(calls)
    for measured in columns:
        if measured.column in times:
            measured.call = times[measured.column]
            measured.host = host_time(calls[measured.column])
    del module, calls, exact
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return columns


def said(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {str(error)[:600]}".replace("\n", " ")


def compiled(column: str, module: nn.Module, compile_mode: str) -> Callable[..., Any]:
    """What a column calls."""
    if column == PEER:
        return torch.compile(module, fullgraph=True, mode=compile_mode)
    if column == OURS:
        import fusewright

        strict = {"strict": True}
        return fusewright.compile(module, fullgraph=True, mode=compile_mode, options=strict)
    return module


def one_call(
    call: Callable[..., Any], module: nn.Module, inputs: dict[str, Any], mode: str
) -> Callable[[], list[torch.Tensor]]:
    """A call without gradients, or a training step, which gives the gradients."""
    return partial(step if mode == "train" else forward, call, module, inputs)


def forward(
    call: Callable[..., Any], module: nn.Module, inputs: dict[str, Any]
) -> list[torch.Tensor]:
    with torch.no_grad():
        return tensors_of(call(**inputs))


def step(
    call: Callable[..., Any], module: nn.Module, inputs: dict[str, Any], *, exactly: bool = False
) -> list[torch.Tensor]:
    module.zero_grad(set_to_none=True)
    with nullcontext() if exactly else torch.autocast("cuda", torch.bfloat16):
        loss = call(**inputs)
    loss.backward()
    return [p.grad for p in module.parameters() if p.grad is not None]


def exact_results(module: nn.Module, inputs: dict[str, Any], mode: str) -> list[torch.Tensor]:
    """What float64 gives."""
    wide = copy.deepcopy(module).double()
    given = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    is_training = mode == "train"
    found = step(wide, wide, given, exactly=True) if is_training else forward(wide, wide, given)
    return [one.detach() for one in found if one.is_floating_point()]


def look_at(
    measured: Measured, compiled_call: Any, call: Callable[[], Any], exact: list[torch.Tensor]
) -> None:
    """The first call, then memory, launches, traffic and errors of another one."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    measured.first = time.perf_counter() - start
    call()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = call()
    torch.cuda.synchronize()
    measured.memory = (torch.cuda.max_memory_allocated() - before) / 2**20
    measured.error = relative_error([one for one in found if one.is_floating_point()], exact)
    del found
    with suppress(RuntimeError, AssertionError):  # of the profiler: the call has been tried
        spent = device_times(call)
        measured.launches = len(spent)
        kernels = bytes_of_kernels(compiled_call)
        seconds = sum(seconds for name, seconds in spent if name in kernels)
        if seconds:
            measured.moved = sum(kernels.values()) / 2**20
            measured.share = sum(kernels.values()) / seconds / bandwidth_of_a_copy()


def relative_error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """‖found − exact‖ / ‖exact‖ over all tensors together."""
    if [one.shape for one in found] != [one.shape for one in exact]:
        return math.inf
    apart = sum(
        float((one.detach().double() - other).square().sum())
        for one, other in zip(found, exact, strict=True)
    )
    size = sum(float(one.square().sum()) for one in exact)
    return math.inf if math.isnan(apart) else math.sqrt(apart / size)


def device_times(call: Callable[[], Any]) -> list[tuple[str, float]]:
    """Kernels, copies and fills of one call, as the profiler sees them: their names, and seconds
    on the GPU.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    return [
        (event.name, event.device_time / 1e6)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]


@functools.cache
def bandwidth_of_a_copy() -> float:
    """Bytes a second, measured once."""
    return copy_bandwidth("cuda")


def bytes_of_kernels(call: Any) -> dict[str, int]:
    """By name, bytes that kernels of a compiled module move in a call, forward and backward: none
    of what we did not compile.
    """
    if not hasattr(call, "_proxy_state"):
        return {}
    import fusewright

    explanation = fusewright.explain(call).history
    moved: Counter[str] = Counter()
    for compilation in explanation.compilations if explanation is not None else ():
        for half in compilation.halves:
            for launch in half.record.launches:
                moved[launch.kernel] += launch.bytes_read + launch.bytes_written
    return moved


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds a call, by events, of columns that take turns."""
    counts = {}
    for column, call in calls.items():
        for _ in range(3):
            call()
        seconds = timed(call, 3) / 1000
        counts[column] = max(1, min(50, int(ROUND_SECONDS / max(seconds, 1e-6))))
    samples: dict[str, list[float]] = {column: [] for column in calls}
    for _ in range(ROUNDS):
        for column, call in calls.items():
            samples[column].append(timed(call, counts[column]))
    return {column: statistics.median(times) for column, times in samples.items()}


def timed(call: Callable[[], Any], count: int) -> float:
    """Milliseconds a call by events, the mean of `count` calls in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count


def host_time(call: Callable[[], Any]) -> float:
    """Median milliseconds until a call returns, when the GPU has nothing to do before it."""
    times = []
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return statistics.median(times)


def caches_in(folder: str) -> dict[str, str]:
    """Environment variables that lead all caches on disk to a folder."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FUSEWRIGHT_CACHE_DIR")
    return {name: os.path.join(folder, name.lower()) for name in names}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(caches_in(folder))
        sys.exit(main())
