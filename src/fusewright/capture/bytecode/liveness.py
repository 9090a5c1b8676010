"""The variables that may still be read at each instruction: the classic backward analysis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusewright.capture.bytecode.instruction import Instruction
from fusewright.capture.bytecode.operations import OPERATIONS, End

_READS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"}
)
"""Operations that want their local variable bound."""

_CELL_READS = frozenset({"LOAD_DEREF", "DELETE_DEREF"})
"""Operations that want the cell of a variable filled."""

LOCAL_INSTRUCTIONS = _READS - {"MAKE_CELL"} | {
    "STORE_FAST",
    "LOAD_FAST_LOAD_FAST",
    "STORE_FAST_LOAD_FAST",
    "STORE_FAST_STORE_FAST",
}
"""Operations on one or two local variables, by name."""


def live_locals(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """The locals that may be read from each instruction on, before they are written again."""
    return _live(instructions, _READS, "STORE_FAST")


def live_cells(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """The variables in cells that may be read from each instruction on, as far as these
    instructions read and write them, before they are written again.
    """
    return _live(instructions, _CELL_READS, "STORE_DEREF")


def _live(
    instructions: Sequence[Instruction], reading: frozenset[str], writing: str
) -> list[frozenset[str]]:
    """The variables that may be read from each instruction on, before they are written again.

    An exception may leave an instruction before it has written its variable, so what its handler
    reads is live too.
    """
    index_of = {instruction: index for index, instruction in enumerate(instructions)}
    successors = [list(_successors(instructions, index, index_of)) for index in index_of.values()]
    uses = [_reads_and_writes(instruction, reading, writing) for instruction in instructions]
    live: list[frozenset[str]] = [frozenset()] * len(instructions)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            reads, writes = uses[index]
            after = frozenset().union(*[live[successor] for successor in successors[index]])
            region = instructions[index].region
            caught = live[index_of[region.handler]] if region else frozenset()
            before = reads | (after - writes) | caught
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def reachable(instructions: Sequence[Instruction], start: int) -> frozenset[int]:
    """The indices of the instructions that may run when control begins at `start`."""
    index_of = {instruction: index for index, instruction in enumerate(instructions)}
    indices: set[int] = set()
    pending = [start]
    while pending:
        index = pending.pop()
        if index in indices:
            continue
        indices.add(index)
        pending += _successors(instructions, index, index_of)
        region = instructions[index].region
        if region is not None:
            pending.append(index_of[region.handler])
    return frozenset(indices)


def always_raises(instructions: Sequence[Instruction], start: int) -> bool:
    """Whether control that begins at `start` gets to a `raise`, and to no other end; exceptions on
    the way aside.
    """
    index_of = {instruction: index for index, instruction in enumerate(instructions)}
    indices: set[int] = set()
    pending = [start]
    raises = False
    while pending:
        index = pending.pop()
        if index in indices:
            continue
        indices.add(index)
        name = instructions[index].name
        if name == "RAISE_VARARGS":
            raises = True
        elif OPERATIONS[name].end is End.LEAVES or name == "YIELD_VALUE":
            return False
        pending += _successors(instructions, index, index_of)
    return raises


def _successors(
    instructions: Sequence[Instruction], index: int, index_of: dict[Instruction, int]
) -> Iterator[int]:
    """The indices to which control may go from an instruction, exceptions aside."""
    instruction = instructions[index]
    if isinstance(instruction.argument, Instruction):
        yield index_of[instruction.argument]
    if OPERATIONS[instruction.name].end is None and index + 1 < len(instructions):
        yield index + 1


def _reads_and_writes(
    instruction: Instruction, reading: frozenset[str], writing: str
) -> tuple[frozenset[str], frozenset[str]]:
    """The variables that an instruction reads and, of the others, those that it writes."""
    match instruction.name, instruction.argument:
        case name, str(variable) if name == writing:
            return frozenset(), frozenset({variable})
        case name, str(variable) if name in reading:
            return frozenset({variable}), frozenset()
    return frozenset(), frozenset()
