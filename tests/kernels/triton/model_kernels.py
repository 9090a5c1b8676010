"""The kernels of the benchmark's models, each run by Triton and by LLVM on the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks import models
from fusewright.aot import trace_inference
from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_names, structural_key
from fusewright.ir.group import Group
from fusewright.ir.program import Buffer
from fusewright.ir.text import print_group
from fusewright.lower import lower
from fusewright.schedule import schedule
from tests.kernels.llvm import harness
from tests.kernels.triton.launching import Launcher, run_group


def groups_of(name: str) -> list[Group]:
    """One group of each structure in the model, captured by torch's front end."""
    found: dict[str, Group] = {}

    def keep(module: torch.fx.GraphModule, examples: list[Any]) -> Any:
        context = CompileContext()
        program = lower(trace_inference(module, examples, context), context)
        for step in schedule(program, context).works:
            if isinstance(step, Group):
                found.setdefault(structural_key(step, canonical_names(step)), step)
        return module.forward

    module, inputs = models.build(name)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=keep)(**inputs)
    return list(found.values())


def check_group(group: Group, launch: Launcher, device: str) -> None:
    """Compare all that the group's kernel writes with what its LLVM kernel writes."""
    generator = torch.Generator().manual_seed(0)
    wanted = {
        buffer.name: numbers_of(buffer, generator) for buffer in (*group.reads, *group.writes)
    }
    found = {name: tensor.to(device, copy=True) for name, tensor in wanted.items()}
    run_group(group, found, launch, {}, None)
    harness.build(print_group(group))(wanted)
    for buffer in group.writes:
        torch.testing.assert_close(
            found[buffer.name].cpu(),
            wanted[buffer.name],
            equal_nan=True,
            rtol=1e-4,
            atol=1e-5,
            msg=lambda text: f"{text}\n{print_group(group)}",
        )


def numbers_of(buffer: Buffer, generator: torch.Generator) -> torch.Tensor:
    """Memory for a buffer: numbers of about one, and integers that are indices of anything."""
    count = 1 + int(buffer.layout.offset) + sum(_reaches(buffer))
    dtype = getattr(torch, buffer.layout.dtype.torch_name)
    if not dtype.is_floating_point:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype)
    return torch.randn(count, generator=generator).to(dtype)


def _reaches(buffer: Buffer) -> Iterator[int]:
    for size, stride in zip(buffer.layout.size, buffer.layout.stride, strict=True):
        yield (int(size) - 1) * int(stride)
