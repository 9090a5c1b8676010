"""Last uses, order, and memory that is taken over."""

from __future__ import annotations

from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.parse import parse_program
from fusewright.ir.program import CallOperator
from fusewright.records import replace
from fusewright.schedule import schedule


def planned(text: str) -> Schedule:
    return schedule(parse_program(text), CompileContext())


CHAIN = """
program chain(x: f64[16, 16])
  a: f64[16, 16] = extern aten.mm.default(x, x) new
  b: f64[16, 16] = pointwise [i0<16, i1<16]
    t0 = load a[16*i0 + i1]
    t1 = exp t0
    yield t1
  c: f64[16, 16] = extern aten.mm.default(b, x)
  return c
"""


def last_uses(schedule: Schedule) -> list[tuple[str, ...]]:
    return [step.last_uses for step in schedule.steps]


def test_a_buffer_dies_with_its_last_reader() -> None:
    assert last_uses(planned(CHAIN)) == [(), (), ("b", "x")]


def test_memory_of_a_buffer_that_dies_is_taken_over() -> None:
    assert [step.takes_over for step in planned(CHAIN).steps] == [(), (("b", "a"),), ()]


def test_an_alias_keeps_memory_alive() -> None:
    program = parse_program(CHAIN)
    (first, middle, last) = program.statements
    assert isinstance(last, CallOperator)
    aliased = replace(program, statements=(first, middle, replace(last, aliases=(("c", "b"),))))
    assert last_uses(schedule(aliased, CompileContext())) == [(), (), ("x",)]


def test_the_order_that_frees_memory_first_is_taken() -> None:
    # As written both large products are alive at once; each is reduced by the step that follows it.
    text = """
program order(x: f64[64, 64], y: f64[64, 64], v: f64[64])
  a: f64[64, 64] = extern aten.mm.default(x, x)
  b: f64[64, 64] = extern aten.mm.default(x, y)
  u: f64[64] = extern aten.mv.default(a, v)
  w: f64[64] = extern aten.mv.default(b, v)
  return u, w
"""
    works = planned(text).works
    assert [work.outputs[0].name for work in works if not isinstance(work, Group)] == list("aubw")


def test_memory_that_a_later_stage_reads_is_not_taken_over() -> None:
    text = """
program rows(x: f64[64, 32])
  y: f64[64, 32] = pointwise [i0<64, i1<32]
    t0 = load x[32*i0 + i1]
    t1 = exp t0
    yield t1
  s: f64[64] = reduce sum [i0<64] over [r0<32]
    t0 = load y[32*i0 + r0]
    yield t0
  z: f64[64, 32] = pointwise [i0<64, i1<32]
    t0 = load x[32*i0 + i1]
    t1 = load s[i0]
    t2 = mul t0, t1
    yield t2
  return y, z
"""
    (group,) = planned(text).works
    assert isinstance(group, Group)
    assert group.reuses == (("z", "x"),)


SAVED = """
program halves(a: f32[1000], b: f32[10], x: f32[1000, 10])
  large: f32[1000] = extern aten.mv.default(x, b)
  small: f32[] = extern aten.dot.default(a, a)
  return large, small
"""


def test_what_releases_an_input_comes_first() -> None:
    """Memory that a saved tensor gives back is there for what comes behind."""
    program = parse_program(SAVED)
    released = replace(program, released_inputs=frozenset({"a"}))
    orders = [
        [step.work.outputs[0].name for step in schedule(one, CompileContext()).steps]
        for one in (program, released)
    ]
    assert orders == [["large", "small"], ["small", "large"]]


def test_what_needs_little_makes_room_for_what_needs_much() -> None:
    """Both steps free more than they need, and the first one more than the other."""
    text = """
program both(a: f32[2000, 2], v: f32[2], b: f32[1000])
  release (a, b)
  large: f32[2000] = extern aten.mv.default(a, v)
  small: f32[] = extern aten.dot.default(b, b)
  return large, small
"""
    steps = planned(text).steps
    assert [step.work.outputs[0].name for step in steps] == ["small", "large"]
