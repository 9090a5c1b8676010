"""The effects of steps on memory: the buffers that each reads, makes and changes."""

from __future__ import annotations

from fusewright.ir.forms import buffers_defined, buffers_overwritten, buffers_read
from fusewright.ir.group import Group, StepWork
from fusewright.ir.program import (
    CallOperator,
    CallSubprogram,
    CallUserKernel,
    CheckFact,
    NumberStatement,
    Program,
    RowStatement,
    operand_buffers,
)
from fusewright.records import record


@record
class Effects:
    """The effects of one statement on memory, by buffer name."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    overwrites: tuple[str, ...] = ()
    """Buffers that exist already and whose memory is changed."""

    is_ordered: bool = False
    """Whether it keeps its place among the steps of which this is true."""

    is_barrier: bool = False
    """Whether it finds out a size, or checks something: the steps behind it stay there."""


def statement_effects(statement: RowStatement) -> Effects:
    """Reads, writes and overwrites of a library call or copy, each buffer once, in order of first
    use.
    """
    writes = tuple(buffers_defined(statement))
    has_effect = has_other_effect(statement)
    is_of_numbers = isinstance(statement, NumberStatement | CheckFact)
    return Effects(
        tuple(dict.fromkeys(buffers_read(statement))),
        writes,
        tuple(buffers_overwritten(statement)),
        has_effect,
        is_barrier=is_of_numbers or (has_effect and not writes),
    )


def buffers_used(work: StepWork) -> tuple[str, ...]:
    """Buffers whose memory a step reads or changes, those it makes left out."""
    if isinstance(work, Group):
        written = {buffer.name for buffer in work.writes}
        return tuple(buffer.name for buffer in work.reads if buffer.name not in written)
    effect = statement_effects(work)
    return tuple(dict.fromkeys((*effect.reads, *effect.overwrites)))


def has_other_effect(statement: RowStatement) -> bool:
    """Whether a statement draws random numbers, checks something, or may do either."""
    match statement:
        case CallOperator(has_effect=has_effect):
            return has_effect
        case CallUserKernel(has_effect=has_effect):
            return has_effect
        case _:
            return isinstance(statement, CallSubprogram)


def output_buffers(program: Program) -> frozenset[str]:
    """Buffers that the caller gets, also through views."""
    return frozenset(operand_buffers(program.outputs))
