"""Which small sums share a kernel on a GPU, and what that costs in memory."""

from __future__ import annotations

import pytest

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.kernels import Languages
from fusewright.schedule import schedule


def sums_apart(between: int, behind: int) -> str:
    """Two sums of columns, with products of so many columns between, and others behind them; what
    becomes of the sums in the end is computed where they are.
    """
    columns = {"a": between, "b": behind}
    inputs = [
        f", {name}_wide: f32[64, {count}] on cuda:0, {name}_narrow: f32[{count}, 64] on cuda:0"
        for name, count in columns.items()
    ]
    product = " on cuda:0 = extern aten.mm.default"
    lines = ["program sums(x: f32[16, 64] on cuda:0, w: f32[64, 64] on cuda:0"]
    lines[0] += "".join(inputs) + ")"
    last = "x"
    for name, count in columns.items():
        lines += [
            f"  {name}: f32[16, 64]{product}({last}, w)",
            f"  {name}_sum: f32[64] on cuda:0 = reduce sum [i0<64] over [r0<16]",
            f"    t0 = load {name}[i0 + 64*r0]",
            "    yield t0",
        ]
        for k in range(5):
            lines += [
                f"  {name}_wide{k}: f32[16, {count}]{product}({last}, {name}_wide)",
                f"  {name}{k}: f32[16, 64]{product}({name}_wide{k}, {name}_narrow)",
            ]
            last = f"{name}{k}"
    for name in columns:
        lines += [
            f"  {name}_end: f32[64] on cuda:0 = pointwise [i0<64]",
            f"    t0 = load {name}_sum[i0]",
            "    t1 = exp t0",
            "    yield t1",
        ]
    return "\n".join([*lines, f"  return a_end, b_end, {last}"]) + "\n"


@pytest.mark.parametrize(("between", "behind", "kernels"), [(256, 64, 2), (64, 256, 1)])
def test_sums_wait_where_memory_has_room(between: int, behind: int, kernels: int) -> None:
    """What the first reads would be held beside the products between them."""
    context = CompileContext(options=Options(verify=True))
    program = parse_program(sums_apart(between, behind))
    scheduled = schedule(program, context, Languages(context.options).limits_of)
    assert sum(isinstance(work, Group) for work in scheduled.works) == kernels
