"""Training under `DistributedDataParallel`: eager, and compiled with gradients reduced while
backward runs, by either way to split, or at its end.

    torchrun --nproc-per-node 2 -m benchmarks.ddp [--models NAME …] [--ways NAME …] [--rounds N]
        [--traces FOLDER]

On GPUs with NCCL where there is one for each process, models of the usual sizes; else on the CPU
with gloo, small ones. For each model, one table. By way: the median time of a step, the ways taking
turns; the most that it is to be, eager's divided by what compiling gains in one process without
communication, plus 5 %; after ten steps, how far gradients and parameters are from those of eager
DDP, relative to their norms (eager's own row: how far it is from itself in float64, which is what
rounding makes of them; where that is more than a hundredth, all ways are compared in float64, and
the row says 0), and whether all ranks hold the same bits; how much of backward has
passed when the first bucket is handed to be reduced, of the time until the last one is, and how
many buckets and nodes of autograd there are. With `--traces`, the profiler's trace of a step by
model, way and rank, for chrome://tracing, and a line on when reductions ran in it. The exit status
is 1 where the default way missed a bar.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

import fusewright
from benchmarks.models import Inputs

ALONE = "alone"
EAGER = "eager"
WAYS = ("backward", "graph", "none")
"""The values of the option `split_for_ddp`; the first is the default."""

STEPS = 10
"""After so many, gradients and parameters are compared with eager's."""

ALLOWED_ERROR = 1e-4
"""Of gradients and parameters, where eager's own is less than half of that."""

LARGEST_ROUNDING = 1e-2
"""How far eager may be from itself in float64; else all ways are compared in float64."""

ALLOWED_TIME = 1.05
LEARNING_RATES = {"gpt2": 1e-2, "bert": 1e-2, "resnet50": 1e-6}
"""A residual network at random weights has gradients that grow a thousandfold on their way: larger
steps make chaos of it, in eager as well.
"""


def gpt2(*, small: bool) -> tuple[nn.Module, Inputs]:
    from transformers import GPT2Config, GPT2LMHeadModel

    none: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes: dict[str, Any] = {}
    if small:
        sizes = {"n_layer": 6, "n_embd": 256, "n_head": 4, "vocab_size": 4096}
    configuration = GPT2Config(use_cache=False, **none, **sizes)
    return GPT2LMHeadModel(configuration), tokens(configuration.vocab_size, small=small)


def bert(*, small: bool) -> tuple[nn.Module, Inputs]:
    from transformers import BertConfig, BertForMaskedLM

    none: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes: dict[str, Any] = {}
    if small:
        sizes = {"num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 1024, "vocab_size": 4096}
    configuration = BertConfig(**none, **sizes)
    return BertForMaskedLM(configuration), tokens(configuration.vocab_size, small=small)


def resnet50(*, small: bool) -> tuple[nn.Module, Inputs]:
    from transformers import ResNetConfig, ResNetForImageClassification

    images, pixels = (4, 96) if small else (32, 224)
    inputs = {"pixel_values": torch.randn(images, 3, pixels, pixels)}
    labels: dict[str, Any] = {"num_labels": 1000}
    configuration = ResNetConfig(**labels)
    return ResNetForImageClassification(configuration), {
        **inputs,
        "labels": torch.randint(0, 1000, (images,)),
    }


def tokens(vocabulary: int, *, small: bool) -> Inputs:
    ids = torch.randint(0, vocabulary, (2, 64) if small else (8, 256))
    return {"input_ids": ids, "labels": ids.clone()}


class WithLoss(nn.Module):
    """A model of the transformers library that returns its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Any:
        return self.model(**inputs).loss


MODELS: dict[str, Callable[..., tuple[nn.Module, Inputs]]] = {
    "gpt2": gpt2,
    "bert": bert,
    "resnet50": resnet50,
}


@dataclass(slots=True)
class Trained:
    """A model that is trained in one way."""

    called: Callable[..., Tensor]
    module: nn.Module
    inputs: Inputs
    rate: float
    times: list[float] = field(default_factory=list)
    """Seconds of a step, by round."""

    def step(self) -> None:
        """Forward, backward and an update."""
        self.module.zero_grad()
        self.called(**self.inputs).backward()
        with torch.no_grad():
            for param in self.module.parameters():
                if param.grad is not None:
                    param.sub_(param.grad, alpha=self.rate)

    def state(self) -> tuple[Tensor, Tensor]:
        """All gradients, and all parameters, as one vector each."""
        params = list(self.module.parameters())
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in params]
        flat = [torch.cat([one.detach().flatten() for one in group]) for group in (grads, params)]
        return flat[0], flat[1]


@dataclass(slots=True)
class Reductions:
    """When backward hands buckets to be reduced."""

    times: list[float] = field(default_factory=list)
    """Seconds since backward began, by bucket."""

    nodes: int = 0
    """Nodes of autograd that stand for compiled code."""

    @property
    def first(self) -> float:
        """The first one's time as a share of the last one's."""
        return self.times[0] / self.times[-1] if self.times else float("nan")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is trained."""

    model: nn.Module
    inputs: Inputs
    rate: float
    options: dict[str, Any]
    """Those of `DistributedDataParallel`."""

    def trained(self, way: str) -> Trained:
        """A copy of the model in one way: "alone" and "alone compiled" are without
        communication.
        """
        module: nn.Module = copy.deepcopy(self.model)
        called: Any = module
        if not way.startswith(ALONE):
            module = called = DistributedDataParallel(module, **self.options)
        if way in WAYS:
            called = fusewright.compile(module, options={"split_for_ddp": way})
        elif way == f"{ALONE} compiled":
            called = fusewright.compile(module)
        return Trained(called, module, self.inputs, self.rate)

    def in_float64(self) -> Subject:
        """The same in double precision."""
        inputs = {
            name: value.double() if value.is_floating_point() else value
            for name, value in self.inputs.items()
        }
        return Subject(copy.deepcopy(self.model).double(), inputs, self.rate, self.options)


def reductions(this: Trained) -> Reductions:
    """When buckets are reduced in a step, in the median of five; on a GPU, by its own clock."""
    inputs = this.inputs
    marks: list[Any] = []

    def hook(group, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations as text
        marks.append(_mark(inputs))
        return allreduce_hook(group, bucket)

    this.module.register_comm_hook(None, hook)  # type: ignore[operator]
    found: list[Reductions] = []
    for number in range(8):
        this.module.zero_grad()
        loss = this.called(**inputs)
        marks[:] = [_mark(inputs)]
        nodes = _compiled_nodes(loss)
        loss.backward()
        _wait(inputs)
        if number >= 3:
            found.append(Reductions([_seconds(marks[0], mark) for mark in marks[1:]], nodes))
    return sorted(found, key=lambda one: one.first)[len(found) // 2]


def traced(column: Trained, file: Path) -> str:
    """Write the profiler's trace of a step. Gives when reductions ran in backward: on a GPU, their
    kernels among all kernels; else, from when one is begun until it is done.
    """
    on_gpu = _is_on_gpu(column.inputs)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        column.module.zero_grad()
        loss = column.called(**column.inputs)
        _wait(column.inputs)
        with record_function("backward"):
            loss.backward()
            _wait(column.inputs)
    profiler.export_chrome_trace(str(file))
    events = profiler.events() or []
    whole = next(event.time_range for event in events if event.name == "backward")
    names = ("ncclDevKernel", "ncclKernel") if on_gpu else ("gloo:",)
    ranges = [event.time_range for event in events if event.name.startswith(names)]
    ranges = [one for one in ranges if whole.start <= one.start <= whole.end]
    if not ranges:
        return f"{file}: no reductions"
    length = whole.end - whole.start
    first, last = min(one.start for one in ranges), max(one.end for one in ranges)
    return (
        f"{file}: {len(ranges)} reductions, the first begins at "
        f"{100 * (first - whole.start) / length:.0f} % of backward's {length / 1000:.1f} ms, the "
        f"last ends at {100 * (last - whole.start) / length:.0f} %"
    )


def _compiled_nodes(loss: Tensor) -> int:
    seen: set[Any] = set()
    stack = [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [before for before, _ in node.next_functions]
    names = ("CompiledFunctionBackward", "SegmentFunctionBackward")
    return sum(node.name() in names for node in seen)


def _mark(inputs: Inputs) -> Any:
    if not _is_on_gpu(inputs):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: Any, end: Any) -> float:
    return float(end - start if isinstance(start, float) else start.elapsed_time(end) / 1000)


def _is_on_gpu(inputs: Inputs) -> bool:
    return any(one.is_cuda for one in inputs.values())


def _wait(inputs: Inputs) -> None:
    if _is_on_gpu(inputs):
        torch.cuda.synchronize()


def same_bits(vector: Tensor) -> bool:
    """Whether all ranks hold the same."""
    own = hashlib.sha256(vector.cpu().numpy().tobytes()).hexdigest()
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, own)
    return len(set(digests)) == 1


def relative(vector: Tensor, wanted: Tensor) -> float:
    """The distance of two vectors relative to the norm of the second."""
    return float((vector.double() - wanted.double()).norm() / wanted.double().norm())


def measure(
    name: str,
    ways: Sequence[str],
    rounds: int,
    options: dict[str, Any],
    device: torch.device,
    traces: Path | None,
) -> tuple[Table, list[str], list[str]]:
    """A model's table, the bars that the default way missed, and what its traces show."""
    torch.manual_seed(dist.get_rank())  # each rank has data of its own; parameters are the first's
    module, inputs = MODELS[name](small=device.type == "cpu")
    model = WithLoss(module).to(device).train()
    inputs = {key: value.to(device) for key, value in inputs.items()}
    subject = Subject(model, inputs, LEARNING_RATES[name], options)
    names = (ALONE, f"{ALONE} compiled", EAGER, *ways)
    columns = {way: subject.trained(way) for way in names}
    compared = {way: _after_steps(columns[way]) for way in names}
    for _ in range(rounds):
        for one in columns.values():
            dist.barrier()
            _wait(inputs)
            start = time.perf_counter()
            one.step()
            _wait(inputs)
            one.times.append(time.perf_counter() - start)
    exact = _after_steps(subject.in_float64().trained(EAGER))
    own = [relative(*pair) for pair in zip(compared[EAGER], exact, strict=True)]
    if max(own) > LARGEST_ROUNDING:  # Single precision tells nothing here.
        for way in ways:
            compared[way] = _after_steps(subject.in_float64().trained(way))
        compared[EAGER], own = exact, [0.0, 0.0]
    medians = {way: statistics.median(one.times) for way, one in columns.items()}
    gain = medians[ALONE] / medians[f"{ALONE} compiled"]
    bar = medians[EAGER] / gain * ALLOWED_TIME
    table = Table(title=f"{name} on {device.type}, {dist.get_world_size()} processes")
    for title in ("way", "step ms", "at most", "gradients", "parameters", "same bits", "first"):
        table.add_column(title)
    for title in ("buckets", "nodes"):
        table.add_column(title)
    for way in (ALONE, f"{ALONE} compiled"):
        table.add_row(way, f"{1000 * medians[way]:.2f}")
    missed: list[str] = []
    shown: list[str] = []
    for way in (EAGER, *ways):
        if traces is not None:
            file = traces / f"{name}-{way}-rank{dist.get_rank()}.json.gz"
            shown.append(traced(columns[way], file))
        pairs = zip(compared[way], compared[EAGER], strict=True)
        result = Result(
            milliseconds=1000 * medians[way],
            errors=own if way == EAGER else [relative(ours, eager) for ours, eager in pairs],
            is_same=same_bits(torch.cat(compared[way])),
            reduced=reductions(columns[way]),
        )
        table.add_row(way, *result.cells(None if way == EAGER else 1000 * bar))
        if way == WAYS[0]:
            missed = result.missed(1000 * bar, own)
    return table, missed, shown


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements of one way to train under `DistributedDataParallel`."""

    milliseconds: float
    """Of a step."""

    errors: list[float]
    """Of gradients and of parameters, after ten steps."""

    is_same: bool
    """Whether all ranks hold the same bits."""

    reduced: Reductions

    def cells(self, bar: float | None) -> list[str]:
        """The cells of its row. `bar`: the milliseconds that a step may take."""
        return [
            f"{self.milliseconds:.2f}",
            "" if bar is None else f"{bar:.2f}",
            *[f"{error:.1e}" for error in self.errors],
            "yes" if self.is_same else "NO",
            f"{100 * self.reduced.first:.0f} %",
            str(len(self.reduced.times)),
            str(self.reduced.nodes),
        ]

    def missed(self, bar: float, roundings: list[float]) -> list[str]:
        """The bars that it misses. `roundings`: eager's own errors."""
        bars = {
            "equal to eager": all(
                error < max(ALLOWED_ERROR, 2 * rounding)
                for error, rounding in zip(self.errors, roundings, strict=True)
            ),
            "ranks equal": self.is_same,
            "first reduction in the first half of backward": self.reduced.first < 0.5,
            "time": self.milliseconds <= bar,
        }
        return [bar_name for bar_name, holds in bars.items() if not holds]


def _after_steps(column: Trained) -> tuple[Tensor, Tensor]:
    for _ in range(STEPS):
        column.step()
    return column.state()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ddp", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--traces", type=Path)
    given = parser.parse_args(arguments)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpus = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", rank) if on_gpus else torch.device("cpu")
    options: dict[str, Any] = {"device_ids": [rank]} if on_gpus else {"bucket_cap_mb": 2}
    if on_gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpus else "gloo")
    if given.traces is not None:
        given.traces.mkdir(parents=True, exist_ok=True)
    console, holds = Console(width=120), True
    for name in given.models:
        start = time.perf_counter()
        table, missed, shown = measure(
            name, given.ways, given.rounds, options, device, given.traces
        )
        holds &= not missed
        if rank == 0:
            console.print(table)
            verdict = f"missed: {', '.join(missed)}" if missed else "all bars hold"
            for line in shown:
                print(line)
            console.print(f"{name}: {verdict}; {time.perf_counter() - start:.0f} s")
            sys.stdout.flush()
    dist.barrier()
    return 0 if holds else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # now and then gloo's threads abort a process that ends, in eager too
