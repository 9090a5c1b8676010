"""The greatest depth of a code unit's value stack, computed by following its control flow."""

from __future__ import annotations

from fusewright.capture.bytecode.instruction import CodeUnit, Instruction
from fusewright.capture.bytecode.operations import OPERATIONS, consumed, produced
from fusewright.capture.bytecode.versions import VERSION
from fusewright.errors import InvalidBytecode


def stack_size(unit: CodeUnit) -> int:
    """The `co_stacksize` that `unit` needs.

    Every place must be reached with one depth, as CPython's own compiler ensures; `InvalidBytecode`
    says where it is not so, where a value is popped that was never pushed, or where control runs
    off the end. Code that nothing reaches counts for nothing.
    """
    instructions = unit.instructions
    index_of = {instruction: index for index, instruction in enumerate(instructions)}
    depths: list[int | None] = [None] * len(instructions)
    deepest = VERSION.minimum_stack_size
    pending: list[int] = []

    def reach(index: int, depth: int) -> None:
        nonlocal deepest
        if index == len(instructions):
            raise InvalidBytecode(f"{unit.qualified_name}: control runs off the end")
        if depths[index] not in (None, depth):
            raise InvalidBytecode(
                f"{unit.qualified_name}: instruction {index} ({instructions[index]!r}) is reached "
                f"with {depth} values on the stack, elsewhere with {depths[index]}"
            )
        deepest = max(deepest, depth)
        if depths[index] is None:
            depths[index] = depth
            pending.append(index)

    reach(0, 0)
    while pending:
        index = pending.pop()
        instruction = instructions[index]
        depth = depths[index]
        assert depth is not None

        region = instruction.region
        if region is not None:
            if region.stack_depth > depth:
                raise InvalidBytecode(
                    f"{unit.qualified_name}: instruction {index} ({instruction!r}) has {depth} "
                    f"values on the stack, its exception handler wants {region.stack_depth}"
                )
            reach(index_of[region.handler], region.stack_depth + region.saves_offset + 1)
        rest = depth - consumed(instruction)
        if rest < 0:
            raise InvalidBytecode(f"{unit.qualified_name}: more is popped than was pushed")
        if isinstance(instruction.argument, Instruction):
            reach(index_of[instruction.argument], rest + produced(instruction, jumps=True))

        after = rest + produced(instruction, jumps=False)
        deepest = max(deepest, after)
        if OPERATIONS[instruction.name].end is None:
            reach(index + 1, after)
    return deepest
