"""Sizes, types and layouts of results on a pretended GPU, where torch's meta kernels say otherwise
than its kernels, and programs that mix devices.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.geometry

Ends with 1 if a program is not as it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from fusewright.fake import FakeMode
from fusewright.ir.text import print_program
from tests.gpu.pretended.graphs import CPU, GPU, moved, pretend
from tests.gpu.pretended.trace import programs_of

Function = Callable[..., Any]
HALF = torch.bfloat16


def put_where(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.index_put(x, (mask,), values)


def with_update(x: torch.Tensor, *statistics: torch.Tensor) -> Any:
    return torch.ops.aten._batch_norm_with_update.default(x, *statistics, 0.1, 1e-5)


PROGRAMS: dict[str, tuple[Function, list[torch.Tensor], str]] = {
    "a loss of two types": (
        functional.binary_cross_entropy_with_logits,
        [torch.empty(2, 3), torch.empty(2, 3, dtype=torch.float16)],
        "buf0: f16[] on cuda:0 = extern aten.binary_cross_entropy_with_logits",
    ),
    "a norm of negative order": (
        lambda x: torch.linalg.vector_norm(x, -1.5, -2),
        [torch.empty(5, 5, 1, 2, dtype=HALF)],
        "buf0: bf16[5, 5, 2] on cuda:0 = extern aten.linalg_vector_norm",
    ),
    "eigenvectors": (
        torch.linalg.eig,
        [torch.empty(5, 5)],
        "buf1: c64[5, 5] on cuda:0 = extern aten.linalg_eig",
    ),
    "statistics of half type": (
        with_update,
        [torch.empty(3, 5, 7, dtype=HALF), *(torch.empty(5, dtype=HALF) for _ in range(4))],
        "buf2: f32[5] on cuda:0, buf3: u8[0] on cuda:0, buf4: bf16[5] on cuda:0",
    ),
    "resampling of no images": (
        lambda x: functional.interpolate(x, scale_factor=2) + 1,
        [torch.empty(0, 2, 5)],
        "f32[0, 2, 10] on cuda:0",
    ),
    "batch norm of a transposed batch": (
        lambda x: functional.batch_norm(x, None, None, training=True),
        [torch.empty(2, 3).t()],
        "f32[3, 2] stride [1, 3] on cuda:0 = pointwise",
    ),
    "combinations": (
        lambda x: torch.combinations(x, 2),
        [torch.empty(4)],
        "extern aten.masked_select.default(",
    ),
    "values put where a mask of the CPU holds": (
        put_where,
        [torch.empty(5, 5), torch.empty(5, dtype=torch.bool), torch.empty(5)],
        "extern aten._to_copy.default(arg0, dtype=dtype.bool, layout=layout.strided, device=",
    ),
    "windows of one column": (
        lambda x: functional.unfold(x, (1, 2)),
        [torch.empty(8, 1, 2, 2)],
        "f32[8, 2, 2] on cuda:0",
    ),
    "the first of each row": (
        lambda x: torch.topk(x, 2),
        [torch.empty(3, 32, dtype=HALF)],
        "i64[3, 2] on cuda:0 = pointwise",
    ),
    "the least of no elements": (lambda x: x.min(), [torch.empty(0)], "RuntimeError"),
}
"""What is called with what, and a part of the text of its programs, forward and backward."""


def text_of(name: str) -> str:
    """The programs of a row; the type of the exception where there is none."""
    function, inputs, _ = PROGRAMS[name]
    graph = fx.Graph()
    places = tuple(graph.placeholder(f"x{number}") for number in range(len(inputs)))
    graph.output(graph.call_function(function, places))
    mode = FakeMode()
    fakes = [moved(tensor, mode, GPU) for tensor in inputs]
    if function is put_where:
        fakes[1] = mode.wrap(inputs[1].to("meta"), CPU)
        fakes = [fake.requires_grad_(fake.is_floating_point()) for fake in fakes]
    try:
        module = fx.GraphModule(torch.nn.Module(), graph)
        return "\n".join(map(print_program, programs_of(module, fakes, "program")))
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    pretend()
    wrong = 0
    for name, (_, _, part) in PROGRAMS.items():
        text = text_of(name)
        if part not in text:
            wrong += 1
            print(f"{name}: nothing of\n{part}\nin\n{text}")
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
