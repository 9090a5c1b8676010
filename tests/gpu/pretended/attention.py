"""Attention on a pretended GPU under a mask that masks nothing, as models make one while they are
compiled: flash attention, whose backward keeps no scores.

    LD_PRELOAD=device.so PRETENDED_ATTENTION=1 python -m tests.gpu.pretended.attention

Ends with 1 if something else is in the programs, or if they are planned to need more memory.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

import fusewright
from fusewright.aot import AtenGraph
from fusewright.context import CompileContext
from fusewright.ir.text import print_program
from fusewright.lower import lower
from fusewright.wrapper.memory import peak_bytes
from tests.gpu.pretended.graphs import Collector, Compiled, pretend
from tests.gpu.traced_programs import module_of

TEXTS, HEADS, LENGTH, WIDTH = 8, 12, 256, 64
TENSOR_BYTES = TEXTS * HEADS * LENGTH * WIDTH * 2
"""Of queries in bfloat16; scores of all pairs take eight times as much in single precision."""

PEAKS = {"forward": 4 * TENSOR_BYTES, "backward": 5 * TENSOR_BYTES}
"""The most bytes, beside inputs."""


class Layer(nn.Module):
    """Attention behind one product."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.project = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).view(TEXTS, LENGTH, 3, HEADS, WIDTH)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        rows = torch.arange(LENGTH, device=x.device)[None, None, :, None]
        mask = (rows >= 0).expand(TEXTS, -1, LENGTH, LENGTH) if self.masked else None
        result = functional.scaled_dot_product_attention(query, key, value, mask)
        return result.transpose(1, 2).reshape(TEXTS, LENGTH, HEADS * WIDTH)


class Programs(Collector):
    """Keeps the programs' texts and the bytes that they are planned to need."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.texts: dict[str, str] = {}
        self.peaks: dict[str, int] = {}

    def compile(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        program = lower(graph, context, layouts_are_free=not half)
        self.texts[half] = print_program(program)
        _, _, lines = module_of(program)
        self.peaks[half] = peak_bytes(lines, program.hints)


def programs(*, masked: bool) -> Programs:
    collector = Programs("masked" if masked else "plain")
    x = torch.zeros(TEXTS, LENGTH, HEADS * WIDTH, dtype=torch.bfloat16)
    try:
        fusewright.compile(Layer(masked=masked).to(torch.bfloat16), backend=collector)(x)
    except Compiled:
        return collector
    raise AssertionError("nothing was compiled")


def main() -> int:
    pretend()
    plain, masked = programs(masked=False), programs(masked=True)
    wrong = [
        f"{half}: another program under a mask\n{text}"
        for half, text in masked.texts.items()
        if text != plain.texts[half] or "_flash_attention" not in text
    ]
    wrong += [f"{half}: {peak} bytes" for half, peak in masked.peaks.items() if peak > PEAKS[half]]
    print(masked.peaks, *wrong, f"{len(wrong)} wrong", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
