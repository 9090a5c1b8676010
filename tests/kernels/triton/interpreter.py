"""Runs Triton kernels of whole programs on CPU tensors, under Triton's own interpreter.

Import this module before anything that imports triton: the interpreter is chosen at decoration.
The interpreter knows no libdevice, so its functions are lent from torch here.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import (
    InterpreterOptions,
    ReduceOps,
    ScanOps,
    TensorHandle,
    interpreter_builder,
)

from fusewright.kernels.triton import TritonKernel
from fusewright.runtime.triton_compiler import load_kernel
from tests.kernels.triton import launching

interpreter_builder.options = InterpreterOptions(debug=True, sanitize_overflow=False)

SAME_NAME = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin"),
    *("acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"),
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


def _keep_truth_values(splat: Callable[..., Any]) -> Callable[..., Any]:
    """A block of one truth value holds truth values; the interpreter's has the type of what was
    compared.
    """

    def call(*arguments: Any) -> Any:
        made = splat(*arguments)
        if any(getattr(one, "data", made.data).dtype == np.bool_ for one in arguments):
            made.data = made.data.astype(np.bool_)
        return made

    return call


def _to_bfloat16(data: np.ndarray) -> np.ndarray:
    """Numbers of float32, rounded to bfloat16."""
    rounded = torch.from_numpy(np.ascontiguousarray(data)).to(torch.bfloat16)
    return rounded.float().numpy().reshape(data.shape)


INSTRUCTIONS = {
    "ex2.approx.ftz.f32 $0, $1;": np.exp2,
    "rcp.approx.ftz.f32 $0, $1;": np.reciprocal,
    "cvt.rn.bf16x2.f32 $0, $1, 0f00000000;": _to_bfloat16,
}
"""What instructions of PTX compute that kernels hold."""


def _instruction(text: str, _: str, operands: Sequence[TensorHandle], *__: Any) -> Any:
    """One instruction on each element; `ftz`: subnormal results are 0."""
    with np.errstate(all="ignore"):
        result = INSTRUCTIONS[text](operands[0].data)
        if "ftz" in text:
            result = np.where(np.abs(result) < np.finfo(np.float32).tiny, result * 0, result)
    return _Results([TensorHandle(result.astype(np.float32), tl.float32)])


class _Results(list[TensorHandle]):
    """Results of an instruction, as Triton asks for them."""

    def get_result(self, place: int) -> TensorHandle:
        return self[place]


def _widen(handle: TensorHandle) -> TensorHandle:
    """Numbers of bf16, which the interpreter keeps as their bits, in float32."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return TensorHandle(wide, tl.float32)


def _rounded(cast: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """Casts to bf16 round, and from it keep subnormal numbers, as on a GPU; the interpreter's cut
    the lower bits off, and give subnormal numbers another exponent.
    """

    def call(handle: TensorHandle, kind: Any) -> TensorHandle:
        if handle.dtype.scalar == tl.bfloat16 and kind.scalar == tl.float32:
            return _widen(handle)
        if handle.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(handle, kind)
        rounded = torch.from_numpy(np.ascontiguousarray(handle.data)).to(torch.bfloat16)
        bits = rounded.view(torch.int16).numpy().view(np.uint16)
        return TensorHandle(bits.reshape(handle.data.shape), tl.bfloat16)

    return call


def _multiply_as_numbers(dot: Callable[..., Any]) -> Callable[..., Any]:
    def call(left: TensorHandle, right: TensorHandle, *others: Any) -> Any:
        return dot(_widen(left), _widen(right), *others)

    return call


def _combined(
    operation: ReduceOps | ScanOps,
    kinds: Sequence[tl.dtype],
    left: Sequence[np.ndarray],
    right: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """What a reduction's function makes of two blocks, element by element."""
    blocks = [
        operation.to_tensor(array, kind)
        for side in (left, right)
        for array, kind in zip(side, kinds, strict=True)
    ]
    made = operation.combine_fn.fn(*blocks)
    made = made if isinstance(made, tuple) else (made,)
    return [block.handle.data.astype(array.dtype) for block, array in zip(made, left, strict=True)]


def _reduce_neighbours(operation: ReduceOps, blocks: Sequence[tl.tensor]) -> list[tl.tensor]:
    """Blocks reduced by a function of the kernel: neighbours are combined, all pairs at once, until
    one element is left. The interpreter's own way takes one element after the other.
    """
    kinds = [block.dtype for block in blocks]
    parts = [block.handle.data for block in blocks]
    axis, rank = operation.axis, parts[0].ndim
    if axis is None:
        parts = [part.reshape(-1) for part in parts]
    along = 0 if axis is None else axis % rank
    before = (slice(None),) * along
    while parts[0].shape[along] > 1:
        even, odd = ([part[*before, start::2] for part in parts] for start in (0, 1))
        parts = _combined(operation, kinds, even, odd)
    if operation.keep_dims:
        shape = (1,) * rank if axis is None else parts[0].shape
        parts = [part.reshape(shape) for part in parts]
    else:
        parts = [part[*before, 0] for part in parts]
    return [operation.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]


def _scan_by_doubling(operation: ScanOps, blocks: Sequence[tl.tensor]) -> list[tl.tensor]:
    """Blocks scanned by a function of the kernel: what ends at an element is twice as long after
    each turn (Hillis and Steele, "Data parallel algorithms", 1986), all elements at once.
    """
    kinds = [block.dtype for block in blocks]
    parts = [block.handle.data for block in blocks]
    axis = operation.axis % parts[0].ndim
    places = np.arange(parts[0].shape[axis]).reshape(-1, *(1,) * (parts[0].ndim - axis - 1))
    distance = 1
    while distance < len(places):
        earlier = [np.roll(part, distance, axis) for part in parts]
        made = _combined(operation, kinds, earlier, parts)
        parts = [
            np.where(places >= distance, new, old) for new, old in zip(made, parts, strict=True)
        ]
        distance *= 2
    return [operation.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]


ReduceOps.generic_reduce = _reduce_neighbours
ScanOps.generic_scan = _scan_by_doubling
interpreter_builder.create_inline_asm = _instruction
interpreter_builder.create_dot = _multiply_as_numbers(interpreter_builder.create_dot)
interpreter_builder.cast_impl = _rounded(interpreter_builder.cast_impl)
interpreter_builder.create_splat = _keep_truth_values(interpreter_builder.create_splat)


def argument_of(value: Any) -> Any:
    """An argument of a kernel; the interpreter leaves a real number as it is in Python."""
    if not isinstance(value, float):
        return value
    return tl.tensor(TensorHandle(np.array([value], dtype=np.float64), tl.float64), tl.float64)


def with_table(
    first_values: bytes, tensors: Sequence[torch.Tensor], kinds: Sequence[str] = ()
) -> list[Any]:
    """The arguments of a kernel that finds its tensors in a table, the last of them. `kinds`: their
    types, where some are numbers.
    """
    *own, table = tensors
    values = list(struct.unpack(f"{len(first_values) // 8}q", first_values))
    launches = len(values)
    for tensor, kind in itertools.zip_longest(own, kinds[:-1], fillvalue="*"):
        if kind.startswith("*"):
            values.append(tensor.data_ptr())
        else:
            value = tensor.numpy().tobytes()
            values.append(int.from_bytes(value.ljust(8, b"\0"), "little", signed=True))
    table.copy_(torch.tensor(values))
    return [table, launches]


def run_kernel(kernel: TritonKernel, folder: Path, count: int, arguments: Sequence[Any]) -> None:
    """Interpret a kernel as so many programs; `folder` is for its source."""
    load_kernel(kernel.source, folder)[(count,)](*map(argument_of, arguments))


def run_program(
    text: str,
    inputs: Sequence[torch.Tensor],
    folder: Path,
    *,
    sizes: dict[str, int] | None = None,
    persistent: bool | None = None,
    configure: launching.Configure | None = None,
) -> list[torch.Tensor]:
    """The outputs of a program, its kernels interpreted; `folder` is for their sources."""

    def launch(kernel: TritonKernel, count: int, arguments: Sequence[Any]) -> None:
        run_kernel(kernel, folder, count, arguments)

    return launching.run_program(
        text,
        inputs,
        launch,
        device="cpu",
        sizes=sizes,
        persistent=persistent,
        configure=configure,
    )
