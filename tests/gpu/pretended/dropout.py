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
from torch.nn import functional

import fusewright
from fusewright.aot import AtenGraph
from fusewright.context import CompileContext
from fusewright.ir.program import Program
from fusewright.ir.text import print_program
from fusewright.lower import lower
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.targets import source_of
from tests.gpu.pretended.graphs import ARCHITECTURE, Collector, Compiled, pretend
from tests.gpu.traced_programs import compiled, failures_of


def layer(x: torch.Tensor) -> torch.Tensor:
    """Two masks that a kernel could both make."""
    return functional.dropout(functional.gelu(functional.dropout(x, 0.1)), 0.25).sin()


class Graphs(Collector):
    """Also keeps the programs."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.programs: dict[str, Program] = {}

    def compile(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        self.programs[half] = lower(graph, context, layouts_are_free=not half)
        super().compile(graph, context, half)


def graphs(function: Callable[..., Any], x: torch.Tensor, **options: Any) -> Graphs:
    collector = Graphs(function.__name__, **options)
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
    wrong += failures_of(found.kernels.values(), (ARCHITECTURE,))
    wrong += runs_too_often(found) if stride == (96, 1) else []
    return [f"{line}\n{texts}" for line in wrong]


PRODUCTS = 20
"""Of a word by a constant in a run of the generator; those of numbers that are known need none."""


def runs_too_often(found: Graphs) -> list[str]:
    """Kernels that run the generator more than once for four elements of a thread and a mask."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for kernel in found.kernels.values():
            source = source_of(kernel)
            assert isinstance(source, TritonSource), "it is a GPU's"
            ((_, block),) = source.blocks.items()
            elements = block // (32 * source.warps)
            masks = kernel.source.count("functions.random_bits(")
            assembly = compiled(kernel, source, ARCHITECTURE, Path(folder)).asm["ptx"]
            products = assembly.count("mul.wide.u32") + assembly.count("mul.hi.u32")
            if not 0 < products <= PRODUCTS * masks * elements // 4:
                wrong.append(f"{products} products\n{kernel.source}")
    return wrong


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
