"""Golden tests of the scheduler: programs in, the steps of their schedules out."""

from __future__ import annotations

from fusewright.context import CompileContext
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_schedule
from fusewright.ir.verify import verify_schedule
from fusewright.kernels.triton import LIMITS
from fusewright.schedule import schedule
from tests.golden import golden


def steps_of(text: str) -> str:
    """The schedule's steps, without the program before them."""
    planned = schedule(parse_program(text), CompileContext())
    verify_schedule(planned)
    return print_schedule(planned).partition("schedule")[2].lstrip("\n")


@golden("cases/gpu.txt")
def test_fusion_for_a_gpu(text: str) -> str:
    planned = schedule(parse_program(text), CompileContext(), lambda device: LIMITS)
    verify_schedule(planned)
    return print_schedule(planned).partition("schedule")[2].lstrip("\n")


@golden("cases/fusion.txt")
def test_fusion(text: str) -> str:
    return steps_of(text)


@golden("cases/inline.txt")
def test_inline(text: str) -> str:
    return steps_of(text)


@golden("cases/split.txt")
def test_split(text: str) -> str:
    return steps_of(text)
