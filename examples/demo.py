"""Compile BERT with fusewright and show what was made, how fast, and that it agrees with eager.

    python -m examples.demo [--layers 12] [--seconds 15]

The weights are random: nothing is downloaded. It runs on a GPU where there is one. torch.compile
runs beside for comparison, where it can.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.compilers import (
    EAGER,
    OURS,
    PEER,
    compiler,
    peer_is_available,
)
from benchmarks.measure import relative_error
from benchmarks.models import tensors_of
from benchmarks.sampling import take_turns

BATCH, LENGTH = 2, 128

STAGES = ("aot", "lower", "schedule", "kernels", "wrapper", "load")
"""After capture, in the order in which they run; a record also has the times of steps inside."""


def main() -> None:
    """Run every step with a progress display, then print the tables."""
    options = _parse()
    console = Console()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peers = [PEER] if device.type == "cuda" or peer_is_available() else []
    columns = [EAGER, OURS, *peers]
    first_calls: dict[str, float] = {}
    models: dict[str, Any] = {}
    calls: dict[str, Callable[[], Any]] = {}
    outputs: dict[str, list[torch.Tensor]] = {}

    display = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*display, console=console) as progress, torch.no_grad():
        task = progress.add_task("build BERT", total=len(columns) + 2)
        model, token_ids = _bert(options.layers, device)
        for column in columns:
            progress.update(task, advance=1, description=f"first call: {column}")
            start = time.perf_counter()
            models[column] = compiled = compiler(column, "own")(model)
            calls[column] = partial(_call, compiled, token_ids)
            outputs[column] = tensors_of(calls[column]())
            first_calls[column] = time.perf_counter() - start
        progress.update(task, advance=1, description="calls in turns")
        samples = take_turns(calls, options.seconds)
        progress.update(task, advance=1, description="done")

    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"\nBertForMaskedLM, {options.layers} layers, {parameters / 1e6:.0f} million parameters, "
        f"batch {BATCH}, length {LENGTH}, float32, {_where(device)}\n"
    )
    for compilation in _compilations(models[OURS]):
        record = compilation.compiled.record
        console.print(_stage_table(compilation, record))
        console.print(_kernel_table(record))
        if record.extern_calls:
            console.print(_extern_table(record))
    console.print(_comparison(first_calls, samples))
    error = relative_error(outputs[OURS], outputs[EAGER])
    console.print(f"relative error against eager: {error:.1e}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=15.0, help="time for the calls in turns")
    return parser.parse_args()


def _where(device: torch.device) -> str:
    """What computes, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} threads"


def _call(model: Any, token_ids: torch.Tensor) -> Any:
    """A call, until its work is done."""
    outputs = model(input_ids=token_ids)
    if token_ids.is_cuda:
        torch.cuda.synchronize()
    return outputs


def _bert(layers: int, device: torch.device) -> tuple[torch.nn.Module, torch.Tensor]:
    """BERT for masked language modelling, and a batch of token ids."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    configuration = BertConfig(num_hidden_layers=layers)
    token_ids = torch.randint(0, configuration.vocab_size, (BATCH, LENGTH))
    return BertForMaskedLM(configuration).eval().to(device), token_ids.to(device)


def _compilations(model: Any) -> tuple[Any, ...]:
    """What was compiled for a model. Imported late: the first call pays for the import."""
    from fusewright.api import compilations

    return compilations(model)


def _stage_table(compilation: Any, record: Any) -> Table:
    """Seconds that each stage of the compile took, and what it made. Where an earlier process has
    kept the plan, tracing is followed by loading.
    """
    made = {
        "capture": f"1 graph, {compilation.node_count} nodes, {compilation.input_count} inputs",
        "lower": f"{len(record.program.statements)} loop bodies and library calls",
        "schedule": f"{record.launch_count} kernel launches, "
        f"{len(record.extern_calls)} library calls, peak {record.peak_bytes / 1e6:.1f} MB",
        "kernels": f"{len(record.kernels)} distinct",
        "guards": f"{len(compilation.guards.checks)} tests",
    }
    times = {
        "capture": compilation.capture_seconds,
        **{stage: record.timings[stage] for stage in STAGES if stage in record.timings},
        "guards": compilation.finish_seconds,
    }
    table = Table(title="stages", title_justify="left", caption_justify="left")
    if len(times) < len(STAGES):
        table.caption = f"plan: {record.kept}"
    table.add_column("stage")
    table.add_column("time", justify="right")
    table.add_column("made")
    for stage, seconds in times.items():
        table.add_row(stage, f"{1e3 * seconds:.0f} ms", made.get(stage, ""))
    table.add_section()
    table.add_row("together", f"{1e3 * sum(times.values()):.0f} ms")
    return table


def _kernel_table(record: Any) -> Table:
    """Each distinct kernel, how often a call launches it, and what that moves."""
    launches = Counter(launch.kernel for launch in record.launches if not launch.shares_launch)
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for launch in record.launches:
        read[launch.kernel] += launch.bytes_read
        written[launch.kernel] += launch.bytes_written

    table = Table(
        title=f"kernels: {len(launches)} distinct, {launches.total()} launches a call",
        title_justify="left",
    )
    table.add_column("kernel")
    for heading in ("launches", "read", "written"):
        table.add_column(heading, justify="right")
    for name, count in launches.most_common():
        table.add_row(
            name, str(count), f"{read[name] / 1e6:.2f} MB", f"{written[name] / 1e6:.2f} MB"
        )
    return table


def _extern_table(record: Any) -> Table:
    """The library calls between the kernels."""
    table = Table(title="library calls", title_justify="left")
    table.add_column("operator")
    table.add_column("calls", justify="right")
    for operator, count in Counter(record.extern_calls).most_common():
        table.add_row(operator, str(count))
    return table


def _comparison(first_calls: dict[str, float], samples: dict[str, list[float]]) -> Table:
    """First call and calls, side by side."""
    table = Table(title="side by side, calls taking turns in one process", title_justify="left")
    table.add_column("")
    for heading in ("first call", "median call", "fastest", "slowest", "speed"):
        table.add_column(heading, justify="right")

    eager = _median(samples[EAGER])
    for column in (EAGER, PEER, OURS):
        if column not in samples:
            table.add_row(column, "not available: there is no C++ compiler")
            continue
        times = samples[column]
        median = _median(times)
        shown = [f"{1e3 * seconds:.1f} ms" for seconds in (median, min(times), max(times))]
        table.add_row(column, f"{first_calls[column]:.2f} s", *shown, f"{eager / median:.2f}x")
    return table


def _median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
