"""The memory pass: turns allocate and last-use lines into reuse, free or nothing, and adds up the
plan's peak.

before                    after
------                    -----
Allocate(a)               Allocate(a)
CallKernel(.., a)         CallKernel(.., a)
FreeIfNotReused(a)
Allocate(b)               Reuse(b, a)
CallKernel(.., b)         CallKernel(.., b)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index
from fusewright.ir.lines import (
    Allocate,
    Arena,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallProgram,
    CallUserTriton,
    Conditional,
    DefineChoice,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Reuse,
    ScanLoop,
    TakeInput,
    WhileLoop,
)
from fusewright.ir.program import Buffer
from fusewright.wrapper.arena import with_arena
from fusewright.wrapper.choices import choices_in, expand

PoolKey = tuple[DType, str, Index]

Pool = dict[PoolKey, list[tuple[int, str]]]
"""Dead buffers by what they can be: the line that frees each, and its name."""


ARENA_BYTES: Final = 4096
"""An arena may add so much to the most that buffers of their own hold at one time: a page, which
small buffers share that are rounded up to be aligned."""


def plan_memory(
    lines: Sequence[Line],
    hints: Mapping[str, int | float],
    released: frozenset[str] = frozenset(),
) -> tuple[Line, ...]:
    """Give each allocation the memory of a dead buffer of the same type, device and span, where
    there is one that can wait for it: at no time, for sizes as in `hints`, may more memory be held
    than the most that buffers yet to be used take, with inputs that go when nobody reads them any
    more (`released`) and results of library calls.

    Only memory that the wrapper allocated itself is given away: graph inputs, constants and results
    of library calls are dropped, and outputs have no last use. On the CPU it waits for whoever has
    use for it, since new memory has to be mapped. On a GPU, where torch keeps what is freed, it
    waits until something else is asked for, which may have that size, or take its place.
    """
    held = _held_bytes(lines, hints, released)
    most = max(held, default=0)
    lines = with_arena(lines, held, most + ARENA_BYTES)
    result: list[Line | None] = list(lines)
    pool: Pool = {}
    allocated: set[str] = set()
    held = _held_bytes(lines, hints, released)
    for position, line in enumerate(lines):
        match line:
            case Allocate(buffer=buffer):
                allocated.add(buffer.name)
                waiting = pool.get(_key(line))
                size = _bytes(line, hints)
                if waiting and _can_wait(held, most, waiting[-1][0], position, size):
                    freed_at, source = waiting.pop()
                    result[freed_at] = None
                    result[position] = Reuse(buffer=buffer, source=source)
                else:
                    pool = _waiting_on_cpu(pool)
            case (
                CallExtern()
                | CallExternOut()
                | CallProgram()
                | CallUserTriton()
                | Conditional()
                | WhileLoop()
                | ScanLoop()
            ):
                pool = _waiting_on_cpu(pool)
            case Reuse(buffer=buffer):
                allocated.add(buffer.name)
            case FreeIfNotReused(buffer=buffer):
                result[position] = Free(name=buffer.name)
                if buffer.name in allocated:
                    pool.setdefault(_key(line), []).append((position, buffer.name))
    return tuple(line for line in result if line is not None)


def _waiting_on_cpu(pool: Pool) -> Pool:
    """The buffers that still wait when memory is asked for that none of them can be."""
    return {key: waiting for key, waiting in pool.items() if key[1] == "cpu"}


def _can_wait(held: list[int], most: int, begin: int, end: int, size: int) -> bool:
    """Whether so many bytes more may be held from line `begin` to line `end`; if so, they are."""
    if any(held[position] + size > most for position in range(begin, end)):
        return False
    for position in range(begin, end):
        held[position] += size
    return True


def _key(line: Allocate | FreeIfNotReused) -> PoolKey:
    layout = line.buffer.layout
    return layout.dtype, layout.device, line.buffer.layout.span


def _bytes(
    line: Allocate | Arena | EnsureLayout | Reuse | TakeInput, hints: Mapping[str, int | float]
) -> int:
    return line.buffer.layout.span.evaluate(hints) * line.buffer.layout.dtype.bytes


def peak_bytes(
    lines: Sequence[Line],
    hints: Mapping[str, int | float],
    released: frozenset[str] | None = None,
) -> int:
    """The most bytes that planned buffers hold at one time, for the given sizes. Of lines ahead of
    the memory pass: the most that buffers yet to be used take, less than which no plan needs.
    `released`: as for `plan_memory`, where what others allocated counts, too.
    """
    return max(_held_bytes(lines, hints, released), default=0)


def _held_bytes(
    lines: Sequence[Line],
    hints: Mapping[str, int | float],
    released: frozenset[str] | None = None,
) -> list[int]:
    """The bytes that buffers hold behind each line; while a choice runs, those of the alternative
    that takes most, too. With `released`: those of inputs that are released, and of results of
    library calls whose layout is ensured, among them.
    """
    choices = choices_in(lines)
    alive: dict[str, int] = {}
    total = 0
    held = []
    for line in lines:
        match line:
            case Allocate(buffer=buffer) | Arena(buffer=buffer):
                alive[buffer.name] = _bytes(line, hints)
                total += alive[buffer.name]
            case Reuse(buffer=buffer, source=source):
                if source not in alive:  # The memory of a library call's result is ours from here.
                    alive[source] = _bytes(line, hints)
                    total += alive[source]
                alive[buffer.name] = alive.pop(source)
            case TakeInput(buffer=buffer) if released and buffer.name in released:
                alive[buffer.name] = _bytes(line, hints)
                total += alive[buffer.name]
            case EnsureLayout(buffer=buffer) if released is not None and buffer.name not in alive:
                alive[buffer.name] = _bytes(line, hints)
                total += alive[buffer.name]
            case TakeInput(buffer=buffer) | Place(buffer=buffer):
                alive[buffer.name] = 0  # The caller holds it, or the arena.
            case Free(name=name) | FreeIfNotReused(buffer=Buffer(name=name)):
                total -= alive.pop(name, 0)
        own = _own_bytes(choices[line.choice], line, hints) if isinstance(line, CallChoice) else 0
        held.append(total + own)
    return held


def _own_bytes(choice: DefineChoice, call: CallChoice, hints: Mapping[str, int | float]) -> int:
    """The most bytes that an alternative allocates for itself."""
    return max(
        max(_held_bytes(expand(choice, alternative, call), hints), default=0)
        for alternative in choice.alternatives
    )
