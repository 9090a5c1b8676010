"""Every operation of the table on every element type, against eager, in every vector width."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from fusewright.ir.dtype import DType
from fusewright.ir.ops import OPERATIONS, Result, ScalarOperation
from fusewright.runtime.llvm_engine import cpu_target
from tests.kernels.llvm.harness import build

TYPES = [DType.F32, DType.F64, DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.BOOL]
COUNT = 333

EAGER: dict[str, Callable[..., torch.Tensor]] = {
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
}
"""Eager's name for an operation, where it is another."""


def kind_letter(dtype: DType) -> str:
    return "f" if dtype.is_float else "b" if dtype is DType.BOOL else "i"


CASES = [
    (row, dtype)
    for row in OPERATIONS.values()
    for dtype in TYPES
    if kind_letter(dtype) in row.kinds
]


def operand(dtype: DType, generator: torch.Generator) -> torch.Tensor:
    """Random elements after the special ones of a type."""
    torch_type = getattr(torch, dtype.torch_name)
    if dtype is DType.BOOL:
        return torch.randint(0, 2, (COUNT,), generator=generator).bool()
    if dtype.is_float:
        values = torch.randn(COUNT, generator=generator, dtype=torch.float64) * 3
        special = [
            0.0,
            -0.0,
            1,
            -1,
            math.inf,
            -math.inf,
            math.nan,
            0.5,
            1.5,
            2.5,
            -0.5,
            1e30,
            -1e30,
        ]
        values[: len(special)] = torch.tensor(special, dtype=torch.float64)
        return values.to(torch_type)
    low = 0 if dtype.kind == "unsigned" else -20
    values = torch.randint(low, 21, (COUNT,), generator=generator).to(torch_type)
    limits = torch.iinfo(torch_type)
    values[3], values[4] = limits.min, limits.max
    return values


def operands(row: ScalarOperation, dtype: DType) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(row.name))
    made = [operand(dtype, generator) for _ in range(row.arity)]
    for position in range(1, row.arity):
        made[position] = made[position][torch.randperm(COUNT, generator=generator)]
    if row.result is Result.SECOND:
        made[0] = operand(DType.BOOL, generator)
    if row.name in ("floor_div", "trunc_div", "remainder", "fmod") and not dtype.is_float:
        made[1] = torch.where(made[1] == 0, torch.ones_like(made[1]), made[1])
    return made


def group_text(row: ScalarOperation, dtype: DType, result: DType) -> str:
    """A group that applies one operation to `COUNT` elements."""
    types = [dtype] * row.arity
    if row.result is Result.SECOND:
        types[0] = DType.BOOL
    reads = [f"  read x{n}: {kind}[{COUNT}]" for n, kind in enumerate(types)]
    loads = [f"    t{n} = load x{n}[i0]" for n in range(row.arity)]
    arguments = ", ".join(f"t{n}" for n in range(row.arity))
    return "\n".join([
        f"group one [i0<{COUNT}]", *reads, f"  write y: {result}[{COUNT}]", "  stage", *loads,
        f"    t{row.arity} = {row.name} {arguments}", f"    store y[i0] = t{row.arity}", "",
    ])  # fmt: skip


@pytest.mark.parametrize("width", ["auto", "avx2", "scalar"])
@pytest.mark.parametrize(("row", "dtype"), CASES, ids=lambda c: getattr(c, "name", str(c)))
def test_operation_equals_eager(row: ScalarOperation, dtype: DType, width: str) -> None:
    values = operands(row, dtype)
    eager = (
        EAGER.get(row.name) or getattr(torch, row.name, None) or getattr(torch.special, row.name)
    )
    wanted = eager(*values)
    result = DType.BOOL if row.result is Result.BOOL else dtype
    found = torch.zeros(COUNT, dtype=getattr(torch, result.torch_name))
    kernel = build(group_text(row, dtype, result), cpu_target(width))
    kernel({**{f"x{n}": value for n, value in enumerate(values)}, "y": found})
    if dtype.is_float and result is dtype:
        tolerance = 3e-7 if dtype is DType.F32 else 1e-14
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=0, equal_nan=True)
    else:
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations([*TYPES, DType.F16, DType.BF16], 2)), ids=str
)
def test_conversion_equals_eager(source: DType, target: DType) -> None:
    generator = torch.Generator().manual_seed(1)
    x = operand(source, generator)
    if source.is_float and not (target.is_float or target is DType.BOOL):
        # Out of range is undefined in eager too.
        bound = min(torch.iinfo(getattr(torch, target.torch_name)).max, 60000)
        x = x.nan_to_num(0, 0, 0).clamp(0 if target is DType.U8 else -bound, bound)
    y = torch.zeros(COUNT, dtype=getattr(torch, target.torch_name))
    text = (
        f"group one [i0<{COUNT}]\n  read x: {source}[{COUNT}]\n  write y: {target}[{COUNT}]\n"
        f"  stage\n    t0 = load x[i0]\n    t1 = cast t0: {target}\n    store y[i0] = t1\n"
    )
    build(text)({"x": x, "y": y})
    torch.testing.assert_close(y, x.to(y.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("source", [DType.I32, DType.I64, DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("target", [*TYPES, DType.F16, DType.BF16], ids=str)
def test_a_last_step_of_one_element_writes_one_element(source: DType, target: DType) -> None:
    count = cpu_target().lanes(32) + 1
    x = torch.zeros(count, dtype=getattr(torch, source.torch_name))
    y = torch.ones(count + 8, dtype=getattr(torch, target.torch_name))
    text = (
        f"group one [i0<{count}]\n  read x: {source}[{count}]\n  write y: {target}[{count}]\n"
        f"  stage\n    t0 = load x[i0]\n    t1 = add t0, t0\n    t2 = cast t1: {target}\n"
        "    store y[i0] = t2\n"
    )
    build(text)({"x": x, "y": y})
    assert y.tolist() == [0] * count + [1] * 8


@pytest.mark.parametrize("name", ["floor_div", "trunc_div", "remainder", "fmod"])
@pytest.mark.parametrize("width", ["auto", "scalar"])
def test_integer_division_by_zero_raises(name: str, width: str) -> None:
    row = OPERATIONS[name]
    kernel = build(group_text(row, DType.I64, DType.I64), cpu_target(width))
    x = torch.arange(COUNT)
    y = torch.ones(COUNT, dtype=torch.int64)
    result = torch.empty(COUNT, dtype=torch.int64)
    kernel({"x0": x, "x1": y, "y": result})
    y[77] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        kernel({"x0": x, "x1": y, "y": result})
    y[77] = 1
    kernel({"x0": x, "x1": y, "y": result})
