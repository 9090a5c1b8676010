"""What `cuda` means in graphs, with two pretended GPUs.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.current_device

Ends with 1 if it is not the GPU that was current when the program asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

import fusewright
from fusewright.aot import trace_inference
from fusewright.context import CompileContext
from fusewright.ir.text import print_program
from fusewright.lower import lower
from tests.gpu.pretended.graphs import pretend

Call = Callable[[torch.Tensor], Any]


def made_there(x: torch.Tensor) -> Any:
    return torch.ones(4, device="cuda") * 2


def sent_there(x: torch.Tensor) -> Any:
    return x.to("cuda") * 2


def sent_by_method(x: torch.Tensor) -> Any:
    return x.cuda() * 2


def made_by_the_library(x: torch.Tensor) -> Any:
    """The call is told its device: it may run where another GPU is current."""
    return torch.tril_indices(3, 3, device=torch.device("cuda"))


def made_on_another(x: torch.Tensor) -> Any:
    return torch.ones(4, device="cuda:1") * 2


class Programs:
    """A backend that keeps the text of each graph's program, and computes nothing."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        context = CompileContext()
        self.texts.append(print_program(lower(trace_inference(module, examples, context), context)))
        return lambda *inputs: (torch.zeros(4),)


def check(function: Call, expected: tuple[str, str]) -> list[str]:
    """What is wrong in graphs made while GPU 0 and GPU 1 are current: `expected` are the devices of
    what they compute.
    """
    programs = Programs()
    compiled = fusewright.compile(function, backend=programs, fullgraph=True)
    for current in (0, 1, 0, 1):
        torch.accelerator.set_device_index(current)
        compiled(torch.ones(4))
    wrong = []
    if len(programs.texts) != 2:
        wrong.append(f"{len(programs.texts)} graphs for two current GPUs")
    for text, device in zip(programs.texts, expected, strict=False):
        other = {"cuda:0": "cuda:1", "cuda:1": "cuda:0"}[device]
        if device not in text or other in text or text.count("cuda") != text.count(device):
            wrong.append(f"not on {device}:\n{text}")
    return [f"{function.__name__}: {one}" for one in wrong]


def main() -> int:
    pretend()
    wrong: list[str] = []
    both = ("cuda:0", "cuda:1")
    for function in (made_there, sent_there, sent_by_method, made_by_the_library):
        wrong += check(function, both)
    wrong += check(made_on_another, ("cuda:1", "cuda:1"))
    torch.accelerator.set_device_index(0)
    print(*wrong, f"{len(wrong)} wrong", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
