"""What steps do to memory: the buffers that each reads, makes and changes."""

from __future__ import annotations

from collections.abc import Iterator

from fusewright.ir.program import (
    BufferReference,
    CopyBack,
    ExternKernel,
    ListOf,
    Operand,
    Program,
    ViewReference,
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


def operand_buffers(operand: Operand) -> Iterator[str]:
    """Names of the buffers in an operand, views and lists looked through."""
    match operand:
        case BufferReference(name=name) | ViewReference(name=name):
            yield name
        case ListOf(items=items):
            for item in items:
                yield from operand_buffers(item)


def statement_effects(statement: ExternKernel | CopyBack) -> Effects:
    """Reads, writes and overwrites of a library call or copy, each buffer once, in order of first
    use.
    """
    match statement:
        case CopyBack(target=target, source=source):
            return Effects(tuple(operand_buffers(source)), (), (target,))
        case ExternKernel():
            keywords = (operand for _, operand in statement.keywords)
            operands = (*statement.arguments, *keywords)
            reads = dict.fromkeys(name for o in operands for name in operand_buffers(o))
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
    return frozenset(name for operand in program.outputs for name in operand_buffers(operand))
