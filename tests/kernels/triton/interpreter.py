"""Runs Triton kernels of whole programs on CPU tensors, under Triton's own interpreter.

Import this module before anything that imports triton: the interpreter is chosen at decoration.
The interpreter knows no libdevice, so its functions are lent from torch here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpreterOptions, TensorHandle, interpreter_builder

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import as_index
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Buffer, BufferReference, CopyBack, Program, ViewReference
from fusewright.kernels.triton import TritonKernel, write
from fusewright.schedule import schedule

interpreter_builder.options = InterpreterOptions(debug=True, sanitize_overflow=False)

SAME_NAME = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin"),
    *("acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv"),
    *("lgamma", "floor", "ceil", "trunc", "rsqrt", "fmod", "pow", "atan2", "hypot"),
    *("copysign", "nextafter"),
)
TORCH: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in SAME_NAME},
    "nearbyint": torch.round,
    "signbit": lambda x: torch.signbit(x).to(torch.int32),
}
"""What each libdevice function computes."""


def _lend(name: str, function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        arrays = [torch.from_numpy(np.ascontiguousarray(a.handle.data)) for a in arguments]
        result = function(*arrays).numpy()
        scalar = tl.int32 if name == "signbit" else arguments[0].type.scalar
        is_block = any(argument.type.is_block() for argument in arguments)
        kind = tl.block_type(scalar, list(result.shape)) if is_block else scalar
        return tl.tensor(TensorHandle(result, scalar), kind)

    return call


for _name, _function in TORCH.items():
    setattr(libdevice, _name, _lend(_name, _function))


def load_kernel(source: str, folder: Path, name: str) -> Any:
    """The kernel of a source, from a real file as Triton needs it."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.kernel


def write_group(group: Group, persistent: bool | None = None) -> TritonKernel:
    """The Triton kernel of a group, under canonical names."""
    names = canonical_names(group)
    sizes = tuple(canonical for canonical, _ in names.sizes)
    return write(canonical_group(group, names), names.arguments, sizes, persistent=persistent)


def scheduled(text: str) -> Schedule:
    return schedule(parse_program(text), CompileContext())


def run_program(
    text: str,
    inputs: Sequence[torch.Tensor],
    folder: Path,
    *,
    sizes: dict[str, int] | None = None,
    persistent: bool | None = None,
) -> list[torch.Tensor]:
    """The outputs of a program, each of its groups run as a Triton kernel."""
    plan = scheduled(text)
    known = sizes or {}
    memory = {
        buffer.name: tensor.clone().reshape(-1) if tensor.is_contiguous() else tensor
        for buffer, tensor in zip(plan.program.inputs, inputs, strict=True)
    }
    for number, step in enumerate(plan.steps):
        if isinstance(step, CopyBack):
            layout = plan.program.buffers()[step.target].layout
            target = _result(ViewReference(step.target, layout), plan.program, memory, known)
            target.copy_(_result(step.source, plan.program, memory, known))
            continue
        assert isinstance(step, Group), "no library calls here"
        for buffer in step.writes:
            memory.setdefault(buffer.name, _memory_of(buffer, plan.program, known, memory))
        run_group(step, memory, folder, f"kernel{number}", known, persistent)
    return [_result(output, plan.program, memory, known) for output in plan.program.outputs]


def run_group(
    group: Group,
    memory: dict[str, torch.Tensor],
    folder: Path,
    name: str,
    sizes: dict[str, int],
    persistent: bool | None,
) -> None:
    names = canonical_names(group)
    kernel = write_group(group, persistent)
    own = {canonical.name: sizes[symbol.name] for canonical, symbol in names.sizes}
    count = kernel.programs.evaluate(own)
    if not count:
        return
    tensors = [memory[buffer] for buffer in names.buffers]
    function = load_kernel(kernel.source, folder, name)
    function[(count,)](*tensors, *own.values(), **dict(kernel.blocks))


def _memory_of(
    buffer: Buffer, program: Program, sizes: dict[str, int], memory: dict[str, torch.Tensor]
) -> torch.Tensor:
    """New memory, full of rubbish; a scatter's result is its base's memory."""
    for statement in program.statements:
        base = getattr(getattr(statement, "body", None), "base", None)
        if base is not None and statement.outputs[0].name == buffer.name:  # type: ignore[union-attr]
            return memory[base]
    dtype = getattr(torch, buffer.layout.dtype.torch_name)
    count = 1
    for size in buffer.layout.size:
        count *= as_index(size).evaluate(sizes)
    rubbish = torch.full((max(count, 1),), 77, dtype=torch.int64)
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
