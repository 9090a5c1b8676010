"""Which step must come before which: by the buffers they read, write and overwrite, with reachability.

Edges run from the writer of a buffer to its readers, from readers of memory to a later step that overwrites it, and
from that step to whoever reads the memory after it (in the program's order). A scatter overwrites its base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fusewright.ir.program import (
    BufferReference,
    ComputedBuffer,
    CopyBack,
    ExternKernel,
    ListOf,
    Operand,
    Program,
    Scatter,
    Statement,
    ViewReference,
)
from fusewright.schedule.analysis import Analysis


@dataclass(frozen=True, slots=True)
class Effects:
    """What one statement does to memory, by buffer name."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    overwrites: tuple[str, ...] = ()
    """Buffers that exist already and whose memory is changed."""


def operand_buffers(operand: Operand) -> Iterator[str]:
    """Names of the buffers in an operand, views and lists looked through."""
    match operand:
        case BufferReference(name=name) | ViewReference(name=name):
            yield name
        case ListOf(items=items):
            for item in items:
                yield from operand_buffers(item)


def effects(statement: Statement, analysis: Analysis) -> Effects:
    """Reads, writes and overwrites of a statement, each buffer once, in order of first use."""
    match statement:
        case CopyBack(target=target, source=source):
            return Effects(tuple(operand_buffers(source)), (), (target,))
        case ExternKernel():
            keywords = (operand for _, operand in statement.keywords)
            operands = (*statement.arguments, *keywords)
            reads = dict.fromkeys(name for o in operands for name in operand_buffers(o))
            return Effects(tuple(reads), _names(statement), statement.mutates)
        case ComputedBuffer(body=Scatter() as body):
            behind = (node for v in body.indirect for node in analysis.loads(v))
            loads = (*behind, *analysis.loads(body.value))
            reads = dict.fromkeys(load.buffer for load in loads)
            return Effects(tuple(reads), _names(statement), (body.base,))
        case ComputedBuffer(body=body):
            reads = dict.fromkeys(load.buffer for load in analysis.loads(body.value))
            return Effects(tuple(reads), _names(statement))


def _names(statement: ComputedBuffer | ExternKernel) -> tuple[str, ...]:
    return tuple(buffer.name for buffer in statement.outputs)


def output_buffers(program: Program) -> frozenset[str]:
    """Buffers that the caller gets, also through views."""
    return frozenset(name for operand in program.outputs for name in operand_buffers(operand))


class Dependencies:
    """A graph over numbered steps that can be contracted; keeps the set of all predecessors of each as bits."""

    def __init__(self, steps: Iterable[Effects]) -> None:
        self.direct: list[set[int]] = []
        self.bits: list[int] = []
        self.before: list[int] = []
        """For each step the bits of all steps that must come before it."""

        writer: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        for number, step in enumerate(steps):
            direct = {writer[name] for name in (*step.reads, *step.overwrites) if name in writer}
            for name in step.overwrites:
                direct.update(readers.get(name, ()))
            direct.discard(number)
            for name in step.reads:
                readers.setdefault(name, []).append(number)
            for name in (*step.writes, *step.overwrites):
                writer[name] = number
                readers[name] = []
            self.direct.append(direct)
            self.bits.append(1 << number)
            before = 0
            for other in direct:
                before |= self.before[other] | self.bits[other]
            self.before.append(before)

    def must_precede(self, first: int, second: int) -> bool:
        """Whether `first` has to come before `second`, directly or through others."""
        return bool(self.before[second] & self.bits[first])

    def between(self, first: int, second: int) -> bool:
        """Whether a third step has to come after `first` and before `second`."""
        bits = self.bits[first]
        return any(self.before[step] & bits for step in self.direct[second] if step != first)

    def contract(self, keep: int, gone: int) -> None:
        """Make one step of two; both must not be joined through a third."""
        bits = self.bits[keep] | self.bits[gone]
        before = (self.before[keep] | self.before[gone]) & ~bits
        self.bits[keep] = bits
        self.direct[keep] = (self.direct[keep] | self.direct[gone]) - {keep, gone}
        self.before[keep] = before
        self.direct[gone] = set()
        for step, direct in enumerate(self.direct):
            if gone in direct:
                direct.discard(gone)
                direct.add(keep)
            if step != keep and self.before[step] & bits:
                self.before[step] |= before | bits
