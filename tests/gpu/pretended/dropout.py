"""Dropout on a pretended GPU: kernels make its numbers of a seed, which alone is kept for backward.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.dropout

Ends with 1 if something else is in the graphs, or a kernel does not compile.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.nn import functional

import fusewright
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
from fusewright.ir.program import Program
from fusewright.ir.text import print_program
from fusewright.lower import lower
from tests.gpu.pretended.graphs import ARCHITECTURE, Collector, Compiled, moved, pretend
from tests.gpu.traced_programs import why_not_launched


def layer(x: torch.Tensor) -> torch.Tensor:
    """Two masks that a kernel could both make."""
    return functional.dropout(functional.gelu(functional.dropout(x, 0.1)), 0.25).sin()


class Graphs(Collector):
    """Also keeps the programs."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, autocast=False)
        self.options = options
        self.programs: dict[str, Program] = {}

    def __call__(self, module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        mode = FakeMode()
        fakes = [moved(example, mode) for example in examples]
        context = CompileContext(options=self.options)
        if needs_gradients(module, fakes):
            partition = min_cut_rematerialization_partition(trace_training(module, fakes, context))
            self.keep(partition.forward, context, "forward")
            self.keep(partition.backward, context, "backward")
        else:
            self.keep(trace_inference(module, fakes, context), context, "")
        raise Compiled

    def keep(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        self.programs[half] = lower(graph, context, layouts_are_free=not half)
        self.compile(graph, context, half)


def graphs(function: Callable[..., Any], x: torch.Tensor, **options: Any) -> Graphs:
    collector = Graphs(function.__name__, Options(verify=True, **options))
    try:
        fusewright.compile(function, backend=collector, fullgraph=True)(x)
    except Compiled:
        return collector
    raise AssertionError("nothing was compiled")


def wrong_in_training(dtype: torch.dtype, stride: tuple[int, ...]) -> list[str]:
    """What is not as it should be in both halves of a layer's graph."""
    x = torch.empty_strided((64, 96), stride, dtype=dtype).zero_().requires_grad_()
    found = graphs(layer, x)
    texts = {half: print_program(program) for half, program in found.programs.items()}
    wrong = [f"{half} draws no two masks" for half in texts if texts[half].count("random") < 2]
    wrong += [f"{half} calls dropout" for half in texts if "native_dropout" in texts[half]]
    wrong += ["seeds are not drawn at once"] * (texts["forward"].count("draw_seeds") != 1)
    kept = [buffer.layout for buffer in found.programs["backward"].inputs]
    wrong += ["backward is given masks" for layout in kept if layout.dtype.torch_name == "bool"]
    if sum(layout.dtype.torch_name == "int64" and not layout.size for layout in kept) != 2:
        wrong.append("backward is not given two seeds")
    with tempfile.TemporaryDirectory() as folder:
        failures = [
            why_not_launched(one, ARCHITECTURE, Path(folder)) for one in found.kernels.values()
        ]
    wrong += [failure for failure in failures if failure is not None]
    return [f"{line}\n{texts}" for line in wrong]


def wrong_without_gradients() -> list[str]:
    """The same of a graph without gradients, and of one that draws what eager draws."""
    with torch.no_grad():
        ours = print_program(graphs(layer, torch.zeros(64, 96)).programs[""])
        eager = print_program(graphs(layer, torch.zeros(64, 96), eager_random=True).programs[""])
    wrong = [ours] if "native_dropout" in ours or ours.count("random") < 2 else []
    return [*wrong, eager] if "native_dropout" not in eager or "random" in eager else wrong


def main() -> int:
    pretend()
    wrong = wrong_without_gradients()
    for dtype in (torch.float32, torch.bfloat16):
        for stride in ((96, 1), (1, 64)):
            wrong += wrong_in_training(dtype, stride)
    print(*wrong, f"{len(wrong)} wrong", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
