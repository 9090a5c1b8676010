"""Graphs as they are on a GPU, compiled without one: traced on fakes of CUDA tensors, lowered,
scheduled, written and compiled to machine code for an H100.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.graphs [--train] [--autocast] [--half]
        NAME …

A name is one of the benchmark's models (`programs` compiles small ones). Prints a line a graph, and
what fails; ends with 1 if something did.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

import fusewright
from benchmarks import models
from benchmarks.gpu_models import WithLoss
from fusewright.aot import (
    AtenGraph,
    min_cut_rematerialization_partition,
    needs_gradients,
    trace_inference,
    trace_training,
)
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.fake import FakeMode
from fusewright.ir.kernel import Kernel
from fusewright.ir.program import CallOperator
from fusewright.lower import lower
from tests.gpu.traced_programs import code_of, failures_of

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
ARCHITECTURE = 90


class Compiled(BaseException):
    """Ends a call whose graph was compiled: there is nothing to run it on."""


class Collector:
    """A backend that compiles graphs as on a GPU, and keeps their kernels."""

    def __init__(self, name: str, *, autocast: bool = False, **options: Any) -> None:
        self.name = name
        self.autocast = autocast
        self.options = Options(verify=True, **options)
        self.kernels: dict[str, Kernel] = {}

    def __call__(self, module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        mode = FakeMode()
        fakes = [moved(example, mode) for example in examples]
        context = CompileContext(options=self.options)
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext():
            for half, graph in traced(module, fakes, context).items():
                self.compile(graph, context, half)
        raise Compiled

    def compile(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        scheduled, kernels = code_of(lower(graph, context, layouts_are_free=not half))
        works = scheduled.works
        calls = Counter(work.operator for work in works if isinstance(work, CallOperator))
        launches = len({id(launch) for launch in kernels.launches.values()})
        print(f"{self.name} {half}: {launches} launches, {dict(calls)}", flush=True)
        self.kernels |= {kernel.key: kernel for kernel in kernels.definitions}


def traced(
    module: fx.GraphModule,
    fakes: Sequence[Any],
    context: CompileContext,
    gpu: torch.device = GPU,
) -> dict[str, AtenGraph]:
    """The ATen graph of a graph on the GPU, as "", or both its halves, "forward" and "backward"."""
    to_gpu(module, gpu)
    if not needs_gradients(module, fakes):
        return {"": trace_inference(module, fakes, context)}
    joint = trace_training(module, fakes, context)
    partition = min_cut_rematerialization_partition(joint, context.options.memory_budget)
    return {"forward": partition.forward, "backward": partition.backward}


def moved(
    example: Any, mode: FakeMode, numbers: torch.device = CPU, gpu: torch.device = GPU
) -> Any:
    """A fake of the example on the GPU; single numbers are on `numbers`."""
    if not isinstance(example, torch.Tensor):
        return example
    meta = torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device="meta")
    fake = mode.wrap(meta, numbers if example.dim() == 0 else gpu)
    return fake.requires_grad_(example.requires_grad)


def to_gpu(module: fx.GraphModule, gpu: torch.device = GPU) -> None:
    """Let what the graph makes on the CPU be made on the GPU."""

    def changed(value: Any) -> Any:
        return gpu if isinstance(value, torch.device) and value.type == "cpu" else value

    for node in module.graph.nodes:
        node.args, node.kwargs = (
            map_aggregate(node.args, changed),
            map_aggregate(node.kwargs, changed),
        )
    module.recompile()


def calls(options: argparse.Namespace) -> list[tuple[str, Callable[..., Any], Any, Any]]:
    """What to compile: name, function, arguments and keywords."""
    found = []
    for name in options.names:
        module, inputs = models.build(name)
        if options.half:
            module = module.to(torch.bfloat16)
            inputs = {
                key: value.to(torch.bfloat16) if value.is_floating_point() else value
                for key, value in inputs.items()
            }
        found.append((name, WithLoss(module).train() if options.train else module, (), inputs))
    return found


def pretend() -> None:
    """Let torch's Python take the pretended GPUs for real ones, and leave them out of the programs
    that this one starts: NVIDIA's assembler would load torch with each kernel, most of its time.
    """
    os.environ.pop("LD_PRELOAD", None)
    torch.cuda._lazy_init = lambda: None  # type: ignore[assignment]
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True  # type: ignore[assignment]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    for flag in ("--train", "--autocast", "--half"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    pretend()
    failures = 0
    kernels: dict[str, Kernel] = {}
    for name, function, arguments, keywords in calls(options):
        collector = Collector(name, autocast=options.autocast)
        try:
            with torch.set_grad_enabled(options.train):
                fusewright.compile(function, backend=collector)(*arguments, **keywords)
        except Compiled:
            pass
        except Exception:
            failures += 1
            print(f"{name} FAILS\n{traceback.format_exc(limit=-8)}", flush=True)
        kernels |= collector.kernels
    for failure in failures_of(kernels.values(), (ARCHITECTURE,)):
        failures += 1
        print(failure)
    print(f"{len(kernels)} kernels, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
