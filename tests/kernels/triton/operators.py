"""Small programs, one for each operation and kind of element, with inputs that try its edges."""

from __future__ import annotations

import torch

from fusewright.ir.dtype import DType
from fusewright.ir.ops import OPERATIONS, Result, ScalarOperation

KINDS = {"f": (DType.F32, DType.F64), "i": (DType.I32, DType.I64, DType.U8), "b": (DType.BOOL,)}

POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "acosh"}
"""Functions whose inputs are drawn mostly from their domain."""

EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, float("inf"), float("-inf"), float("nan"))


def types(operation: ScalarOperation) -> list[DType]:
    return [dtype for kind in operation.kinds for dtype in KINDS[kind]]


def program_of(operation: ScalarOperation, dtype: DType, count: int = 100) -> str:
    """A program of one operation on inputs `a`, `b`, `c` of one type."""
    names = "abc"[: operation.arity]
    is_where = operation.result is Result.SECOND
    given = [DType.BOOL if is_where and name == "a" else dtype for name in names]
    result = DType.BOOL if operation.result is Result.BOOL else dtype
    inputs = ", ".join(f"{name}: {t}[{count}]" for name, t in zip(names, given, strict=True))
    loads = [f"    t{n} = load {name}[i0]" for n, name in enumerate(names)]
    operands = ", ".join(f"t{n}" for n in range(len(names)))
    return "\n".join(
        [
            f"program one({inputs})",
            f"  y: {result}[{count}] = pointwise [i0<{count}]",
            *loads,
            f"    t9 = {operation.name} {operands}",
            "    yield t9",
            "  return y",
            "",
        ]
    )


def operator_programs() -> list[tuple[str, str]]:
    """Every operation on every type it takes: name and program."""
    return [
        (f"{operation.name} {dtype}", program_of(operation, dtype))
        for operation in OPERATIONS.values()
        for dtype in types(operation)
    ]


def inputs_of(operation: ScalarOperation, dtype: DType, count: int = 100) -> list[torch.Tensor]:
    """Arguments: edges first, all pairs of them for two arguments; then random numbers."""
    generator = torch.Generator().manual_seed(len(operation.name))
    made = []
    for position in range(operation.arity):
        if operation.result is Result.SECOND and position == 0:
            made.append(torch.rand(count, generator=generator) < 0.5)
            continue
        made.append(_values(operation, dtype, position, count, generator))
    return made


def _values(
    operation: ScalarOperation, dtype: DType, position: int, count: int, generator: torch.Generator
) -> torch.Tensor:
    torch_type = getattr(torch, dtype.torch_name)
    if dtype is DType.BOOL:
        return torch.rand(count, generator=generator) < 0.5
    if dtype.is_integer:
        low = 0 if dtype.kind == "unsigned" else -20
        drawn = torch.randint(low, 20, (count,), generator=generator)
        if position and operation.name in ("floor_div", "trunc_div", "remainder", "fmod"):
            drawn = torch.where(drawn == 0, 7, drawn)
        if position and operation.name == "pow":
            drawn = drawn.abs() % 7
        if position and operation.name.startswith("shift"):
            drawn = drawn.abs() % 8
        return drawn.to(torch_type)
    values = torch.randn(count, generator=generator, dtype=torch.float64) * 3
    if operation.name in POSITIVE:
        values = values.abs() + (1 if operation.name == "acosh" else 0)
    edges = torch.tensor(EDGES, dtype=torch.float64)
    edges = edges.repeat(len(EDGES)) if position else edges.repeat_interleave(len(EDGES))
    half = count // 2
    step = max(1, len(edges) // half)
    values[:half] = edges[::step][:half]
    return values.to(torch_type)
