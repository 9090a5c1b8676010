"""Schedules are deterministic, equal layers give equal groups, and refusals say why."""

from __future__ import annotations

import subprocess
import sys

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_names, structural_key
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Program
from fusewright.ir.text import print_schedule
from fusewright.schedule import schedule
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import output_buffers
from fusewright.schedule.fusion import Graph, fuse, why_not_fuse
from fusewright.schedule.schedule import simplified_steps


def layers(count: int, prefix: str = "b") -> str:
    """Residual layers of a product, a sum and a normalisation by the row's sum."""
    rows = [
        "program layers(x: f64[2, 128, 768], w: f64[768, 768])",
        *(
            f"""\
  {prefix}{k}m: f64[256, 768] = extern aten.mm.default(view({before}, f64[256, 768]), w)
  {prefix}{k}x: f64[2, 128, 768] = pointwise [i0<2, i1<128, i2<768]
    t0 = load {before}[98304*i0 + 768*i1 + i2]
    t1 = load {prefix}{k}m[98304*i0 + 768*i1 + i2]
    t2 = add t0, t1
    yield t2
  {prefix}{k}s: f64[2, 128, 1] = reduce sum [i0<2, i1<128, i2<1] over [r0<768]
    t0 = load {prefix}{k}x[98304*i0 + 768*i1 + r0]
    yield t0
  {prefix}{k}y: f64[2, 128, 768] = pointwise [i0<2, i1<128, i2<768]
    t0 = load {prefix}{k}x[98304*i0 + 768*i1 + i2]
    t1 = load {prefix}{k}s[128*i0 + i1]
    t2 = div t0, t1
    yield t2"""
            for k, before in ((k, f"{prefix}{k - 1}y" if k else "x") for k in range(count))
        ),
        f"  return {prefix}{count - 1}y",
    ]
    return "\n".join(rows) + "\n"


def keys(program: Program) -> list[str]:
    steps = schedule(program, CompileContext()).works
    groups = [step for step in steps if isinstance(step, Group)]
    return [structural_key(group, canonical_names(group)) for group in groups]


def test_equal_layers_give_equal_groups() -> None:
    twelve = keys(parse_program(layers(12)))
    assert len(twelve) == 12 and len(set(twelve)) == 1
    assert set(keys(parse_program(layers(3)))) == set(twelve)


def test_names_of_buffers_do_not_matter() -> None:
    # Sorted by name, these stand in another order.
    assert keys(parse_program(layers(11, "b"))) == keys(parse_program(layers(11, "zz")))


def test_two_schedules_of_one_program_are_equal() -> None:
    first, second = (
        print_schedule(schedule(parse_program(layers(4)), CompileContext())) for _ in range(2)
    )
    assert first == second


def graph_of(text: str) -> Graph:
    program = parse_program(text)
    analysis = Analysis(program)
    return Graph.of(simplified_steps(program, analysis), output_buffers(program), analysis)


def test_refusals_say_why() -> None:
    graph = graph_of("""
program refusals(x: f32[64, 32], y: f32[64, 32])
  a: f32[64] = reduce sum [i0<64] over [r0<32]
    t0 = load x[32*i0 + r0]
    yield t0
  b: f32[32] = reduce sum [i0<32] over [r0<64]
    t0 = load x[i0 + 32*r0]
    yield t0
  m: f32[64, 64] = extern aten.mm.default(view(b, f32[32]), y)
  c: f32[64, 64] = pointwise [i0<64, i1<64]
    t0 = load m[64*i0 + i1]
    t1 = load b[0]
    t2 = add t0, t1
    yield t2
  d: f32[64] = pointwise [i0<64]
    t0 = load a[63 - i0]
    yield t0
  e: f32[64] = pointwise [i0<64]
    t0 = load a[i0]
    t1 = exp t0
    yield t1
  return b, c, d, e
""")
    a, b, m, c, d, e = range(6)
    assert why_not_fuse(graph, a, b) == (
        "the first is no plain store: its outer i0 cannot be an inner loop"
    )
    assert why_not_fuse(graph, b, m) == "a library call or a copy has no loops to fuse"
    assert why_not_fuse(graph, b, c) == "a third step lies between them"
    assert "steps of 1 and -1 elements" in (why_not_fuse(graph, a, d) or "")
    assert why_not_fuse(graph, a, e) is None
    fuse(graph)
    assert graph.nest(a) is not None and graph.nest(e) is None


def test_scheduling_imports_no_torch() -> None:
    check = "import sys, fusewright.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
