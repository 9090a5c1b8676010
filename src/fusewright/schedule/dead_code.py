"""Remove statements whose results nobody uses.

Before:                                     After:
```
a: f32[4] = pointwise …                     b: f32[4] = pointwise …
b: f32[4] = pointwise …                     return b
return b
```
A library call stays when it changes memory or has another effect: an assert, or a random draw,
since the next draw depends on it. What may raise stays too: eager raises, whoever reads the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusewright.ir.program import (
    CallOperator,
    ComputedBuffer,
    Program,
    Scatter,
    Statement,
    UnfilledMemory,
)
from fusewright.ir.raising import library_call_may_raise
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import output_buffers, statement_effects
from fusewright.schedule.nest import Nest, Step, step_effects


def remove_dead_code(program: Program, analysis: Analysis) -> Program:
    """Walk backwards from the outputs; what is never met is dead."""
    needed = set(output_buffers(program))
    live: list[Statement] = []
    for statement in reversed(program.statements):
        if _has_effect(statement, analysis) or any(
            buffer.name in needed for buffer in statement.outputs
        ):
            live.append(statement)
            needed.update(_used(statement, analysis))
    if len(live) == len(program.statements):
        return program
    return replace(program, statements=tuple(reversed(live)))


def _used(statement: Statement, analysis: Analysis) -> Iterator[str]:
    match statement:
        case ComputedBuffer(body=Scatter() as body):
            for root in (*body.indirect, body.value):
                yield from (load.buffer for load in analysis.loads(root))
            yield body.base
        case ComputedBuffer(body=body):
            yield from (load.buffer for load in analysis.loads(body.value))
        case _:
            effect = statement_effects(statement)
            yield from (*effect.reads, *effect.overwrites)


def _has_effect(statement: Statement, analysis: Analysis) -> bool:
    match statement:
        case CallOperator(operator=operator, mutates=mutates, has_effect=has_effect):
            return bool(mutates) or has_effect or library_call_may_raise(operator)
        case UnfilledMemory():
            return False
        case ComputedBuffer(body=Scatter() as body):
            return any(map(analysis.may_raise, (*body.indirect, body.value)))
        case ComputedBuffer(body=body):
            return analysis.may_raise(body.value)
        case _:
            return True


def remove_unread(
    steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis
) -> list[Step | None]:
    """Steps without nests whose results nobody reads, or only others that go; None in their place.
    Inlining finds that a value does not depend on a buffer that it loaded, such as an index times
    the length of what repeats. What may raise stays.
    """
    left = list(steps)
    needed = set(kept)
    for number in reversed(range(len(left))):
        step = left[number]
        if step is None:
            continue
        effect = step_effects(step, analysis)
        if isinstance(step, Nest) and needed.isdisjoint(effect.writes):
            roots = (root for piece in step.pieces for root in piece.roots)
            if not any(map(analysis.may_raise, roots)):
                left[number] = None
                continue
        needed.update((*effect.reads, *effect.overwrites))
    return left


def unread_buffers(
    steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis
) -> frozenset[str]:
    """Buffers of nests of which nobody reads any: they are computed since that may raise."""
    effects = [(step, step_effects(step, analysis)) for step in steps if step is not None]
    read = kept.union(*((*effect.reads, *effect.overwrites) for _, effect in effects))
    return frozenset(
        name
        for step, effect in effects
        if isinstance(step, Nest) and read.isdisjoint(effect.writes)
        for name in effect.writes
    )
