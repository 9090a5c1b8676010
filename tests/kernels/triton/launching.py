"""Runs whole programs by their Triton kernels; whoever asks says how one kernel is launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group, Schedule
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Buffer, BufferReference, CopyBack, Program, ViewReference
from fusewright.kernels.triton import Configuration, TritonKernel, configuration_of, write
from fusewright.optimizer import limits_of_any
from fusewright.schedule import schedule

Launcher = Callable[[TritonKernel, int, Sequence[Any]], None]
"""Runs a kernel as so many programs on its arguments: tensors, sizes, block sizes."""


Configure = Callable[[Group], Configuration]
"""Chooses the configuration of a group under canonical names."""


def write_group(
    group: Group, persistent: bool | None = None, configure: Configure | None = None
) -> TritonKernel:
    """The Triton kernel of a group, under canonical names."""
    names = canonical_names(group)
    sizes = tuple(canonical for canonical, _ in names.sizes)
    own = canonical_group(group, names)
    configuration = configure(own) if configure else configuration_of(own, persistent)
    return write(own, names.arguments, sizes, configuration)


def scheduled(text: str) -> Schedule:
    """The schedule of a program by the limits of the devices that its buffers are said to be on."""
    return schedule(parse_program(text), CompileContext(), limits_of_any)


def run_program(
    text: str,
    inputs: Sequence[torch.Tensor],
    launch: Launcher,
    *,
    device: str,
    sizes: dict[str, int] | None = None,
    persistent: bool | None = None,
    configure: Configure | None = None,
) -> list[torch.Tensor]:
    """The outputs of a program on `device`, each of its groups run as a Triton kernel."""
    plan = scheduled(text)
    known = sizes or {}
    memory = {
        buffer.name: _copied_memory(tensor, device)
        for buffer, tensor in zip(plan.program.inputs, inputs, strict=True)
    }
    for step in plan.works:
        if isinstance(step, CopyBack):
            layout = plan.program.buffers()[step.target].layout
            target = _result(ViewReference(step.target, layout), plan.program, memory, known)
            target.copy_(_result(step.source, plan.program, memory, known))
            continue
        assert isinstance(step, Group), "no library calls here"
        for buffer in step.writes:
            if buffer.name not in memory:
                memory[buffer.name] = _memory_of(buffer, plan.program, known, memory, device)
        run_group(step, memory, launch, known, persistent, configure)
    return [_result(output, plan.program, memory, known) for output in plan.program.outputs]


def run_group(
    group: Group,
    memory: dict[str, torch.Tensor],
    launch: Launcher,
    sizes: dict[str, int],
    persistent: bool | None,
    configure: Configure | None = None,
) -> None:
    names = canonical_names(group)
    kernel = write_group(group, persistent, configure)
    own = {canonical.name: sizes[symbol.name] for canonical, symbol in names.sizes}
    count = kernel.programs.evaluate(own)
    if count:
        tensors = [memory[buffer] for buffer in names.buffers]
        kinds = [kind for _, kind in kernel.signature]
        given = [
            tensor if kind.startswith("*") else tensor.item()
            for tensor, kind in zip(tensors, kinds, strict=False)
        ]
        launch(kernel, count, [*given, *own.values(), *dict(kernel.blocks).values()])


def _copied_memory(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """All memory behind a tensor from its first element on, gaps included, as a copy."""
    start = tensor.storage_offset()
    count = tensor.untyped_storage().nbytes() // tensor.element_size() - start
    return torch.as_strided(tensor, (count,), (1,), start).to(device, copy=True)


def _memory_of(
    buffer: Buffer,
    program: Program,
    sizes: dict[str, int],
    memory: dict[str, torch.Tensor],
    device: str,
) -> torch.Tensor:
    """New memory, full of rubbish; a scatter's result is its base's memory."""
    for statement in program.statements:
        base = getattr(getattr(statement, "body", None), "base", None)
        if base is not None and statement.outputs[0].name == buffer.name:  # type: ignore[union-attr]
            return memory[base]
    dtype = getattr(torch, buffer.layout.dtype.torch_name)
    count = buffer.layout.span.evaluate(sizes)
    rubbish = torch.full((max(count, 1),), 77, dtype=torch.int64, device=device)
    return rubbish.to(dtype)


def _result(
    output: Any, program: Program, memory: dict[str, torch.Tensor], sizes: dict[str, int]
) -> torch.Tensor:
    layout = output.layout if isinstance(output, ViewReference) else None
    if isinstance(output, BufferReference):
        layout = program.buffers()[output.name].layout
    assert layout is not None
    size = [index.evaluate(sizes) for index in layout.size]
    stride = [index.evaluate(sizes) for index in layout.stride]
    return torch.as_strided(memory[output.name], size, stride, layout.offset.evaluate(sizes))
