"""What steps do to memory: the buffers that each reads, makes and changes."""

from __future__ import annotations

from fusewright.ir.program import (
    CopyBack,
    ExternKernel,
    Program,
    operand_buffers,
)
from fusewright.records import record


@record
class Effects:
    """What one statement does to memory, by buffer name."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    overwrites: tuple[str, ...] = ()
    """Buffers that exist already and whose memory is changed."""

    is_ordered: bool = False
    """Whether it keeps its place among the steps of which this is true."""

    is_barrier: bool = False
    """Whether it finds out a size, or checks something: the steps behind it stay there."""


def statement_effects(statement: ExternKernel | CopyBack) -> Effects:
    """Reads, writes and overwrites of a library call or copy, each buffer once, in order of first
    use.
    """
    match statement:
        case CopyBack(target=target, source=source):
            return Effects(tuple(operand_buffers([source])), (), (target,))
        case ExternKernel():
            keywords = (operand for _, operand in statement.keywords)
            reads = dict.fromkeys(operand_buffers((*statement.arguments, *keywords)))
            writes = tuple(buffer.name for buffer in statement.outputs)
            return Effects(
                tuple(reads),
                writes,
                statement.mutates,
                statement.has_effect,
                is_barrier=bool(statement.number or (statement.has_effect and not writes)),
            )


def output_buffers(program: Program) -> frozenset[str]:
    """Buffers that the caller gets, also through views."""
    return frozenset(operand_buffers(program.outputs))
