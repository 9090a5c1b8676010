"""The memory plan as rectangles: which buffer holds how many bytes, from which step to which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewright.ir.forms import blocks_of
from fusewright.ir.lines import (
    Allocate,
    Arena,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    Conditional,
    CopyInto,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Reuse,
    ScanLoop,
    WhileLoop,
)
from fusewright.ir.program import Buffer
from fusewright.records import record


@record(frozen=False)
class MemoryBlock:
    """Memory that one buffer, or several one after another, hold."""

    names: list[tuple[str, int]]
    """The buffers, each with the first step that may use it."""

    bytes: int
    begin: int
    """The first step that may use it."""

    end: int
    """The step behind the last."""

    offset: int = 0
    """Where it is drawn: no two that live at one time overlap."""


@record(kw_only=True)
class MemoryPlan:
    """The memory that planned buffers hold while a graph runs."""

    steps: list[str]
    """The kernel or library call of each step, in words."""

    blocks: list[MemoryBlock]
    held: list[int]
    """Bytes at each step."""

    @property
    def peak(self) -> int:
        """The most bytes at any step."""
        return max(self.held, default=0)

    def as_data(self) -> dict[str, Any]:
        """The plan as the page's script reads it."""
        return {
            "steps": self.steps,
            "held": self.held,
            "peak": self.peak,
            "blocks": [
                [block.names, block.bytes, block.begin, block.end, block.offset]
                for block in self.blocks
            ],
        }


def memory_plan(lines: tuple[Line, ...], hints: Mapping[str, int | float]) -> MemoryPlan:
    """The memory that the lines of a wrapper hold, for sizes as in `hints`."""
    steps: list[str] = []
    blocks: list[MemoryBlock] = []
    alive: dict[str, MemoryBlock] = {}
    for line in lines:
        match line:
            case Allocate(buffer=buffer) | Arena(buffer=buffer):
                block = MemoryBlock(
                    [(buffer.name, len(steps))], _bytes(buffer, hints), len(steps), -1
                )
                alive[buffer.name] = block
                blocks.append(block)
            case Reuse(buffer=buffer, source=source) if source in alive:
                alive[buffer.name] = alive.pop(source)
                alive[buffer.name].names.append((buffer.name, len(steps)))
            case Place(buffer=buffer, arena=arena):
                alive[arena].names.append((buffer.name, len(steps)))
            case Free(name=name) | FreeIfNotReused(buffer=Buffer(name=name)):
                if name in alive:
                    alive.pop(name).end = len(steps)
            case CallKernel(launch=launch):
                steps.append(launch.kernel)
            case CallChoice(choice=choice):
                steps.append(choice)
            case CallExtern(operator=operator) | CallExternOut(operator=operator):
                steps.append(operator)
            case CallProgram(name=name) | CallUserTriton(name=name):
                steps.append(name)
            case Conditional() | WhileLoop() | ScanLoop():
                steps.append(blocks_of(line)[0].name)
            case CopyInto(target=target):
                steps.append(f"copy into {target}")
            case _:
                pass
    for block in alive.values():
        block.end = len(steps)
    _place(blocks)
    held = [
        sum(block.bytes for block in blocks if block.begin <= step < block.end)
        for step in range(len(steps))
    ]
    return MemoryPlan(steps=steps, blocks=blocks, held=held)


def _bytes(buffer: Buffer, hints: Mapping[str, int | float]) -> int:
    return buffer.layout.span.evaluate(hints) * buffer.layout.dtype.bytes


def _place(blocks: list[MemoryBlock]) -> None:
    """Give each block the lowest place that is free while it lives, to those that live longest
    first.
    """
    placed: list[MemoryBlock] = []
    for block in sorted(blocks, key=lambda block: block.begin - block.end):
        beside = sorted(
            (other for other in placed if other.begin < block.end and block.begin < other.end),
            key=lambda other: other.offset,
        )
        for other in beside:
            if block.offset + block.bytes <= other.offset:
                break
            block.offset = max(block.offset, other.offset + other.bytes)
        placed.append(block)
