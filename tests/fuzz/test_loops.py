"""Random loop programs compute what they say; and the check finds what it is there to find."""

from __future__ import annotations

from random import Random

import pytest

from fusewright import kernels
from fusewright.context import CompileContext
from fusewright.errors import MalformedProgram
from fusewright.fuzz.loops import check, generate, shrunk
from fusewright.ir.canonical import CanonicalNames, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.index import Index, Symbol
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_program
from fusewright.ir.text_parts import Names
from fusewright.ir.verify import verify_renamed_group
from fusewright.kernels.llvm.scope import Scope
from fusewright.records import replace
from fusewright.schedule import schedule


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_programs(first: int) -> None:
    """Two targets each: every program on the machine's own, and on one more."""
    for seed in range(first, first + 6):
        targets = ("auto", "scalar" if seed % 2 else "avx2")
        program = generate(Random(seed))
        wrong = check(program, seed, targets)
        assert wrong is None, print_program(shrunk(program, seed, targets))


def test_programs_are_made_again_and_read_back() -> None:
    for seed in range(15):
        text = print_program(generate(Random(seed)))
        assert text == print_program(generate(Random(seed)))
        assert text == print_program(parse_program(text))


MASKED_AND_NOT = """
program random(x: i64[7], y: f32[7])
  b: f32[7] = pointwise [i0<7]
    t0 = index i0: i64
    t1 = lt t0, 3
    t2 = load x[i0]
    t3 = remainder t2, 7
    k0 = indirect t3 below 7
    t4 = load y[k0]
    t5 = masked t1, t4, 3.0
    t6 = sub t5, t4
    yield t6
  return b
"""

OUTER_PRODUCT = """
program random(x: f32[5])
  a: f32[5, 5] = pointwise [i0<5, i1<5]
    t0 = load x[i0]
    t1 = load x[i1]
    t2 = mul t0, t1
    yield t2
  b: i64[] = reduce argmax [] over [r0<5]
    t0 = load x[r0]
    yield t0
  return a, b
"""


def index_alone(scope: Scope, index: Index) -> object:
    return index


def one_table_for_all_stages(group: Group) -> CanonicalNames:
    canonical = canonical_names(group)
    symbols: dict[Symbol, Index] = {}
    for stage in canonical.stages:
        symbols.update(stage.symbols)
    stages = (Names(canonical.names.buffers, symbols),) * len(canonical.stages)
    return replace(canonical, stages=stages)


def test_what_the_check_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mistakes that were made: each changes what a kernel reads or writes."""
    programs = [parse_program(text) for text in (MASKED_AND_NOT, OUTER_PRODUCT)]
    assert [check(program, targets=("auto",)) for program in programs] == [None, None]
    monkeypatch.setattr(Scope, "expression_key", index_alone)
    assert "not" in (check(programs[0], targets=("auto",)) or "")
    monkeypatch.setattr(kernels, "canonical_names", one_table_for_all_stages)
    assert check(programs[1], targets=("auto",))


def test_the_verifier_alone_finds_loops_under_the_names_of_another_stage() -> None:
    (group,) = schedule(parse_program(OUTER_PRODUCT), CompileContext()).works
    assert isinstance(group, Group)
    assert str(verify_renamed_group(group, canonical_names(group))) == "6 proved, 2 covered"
    with pytest.raises(MalformedProgram, match="two loops are named r0"):
        verify_renamed_group(group, one_table_for_all_stages(group))
