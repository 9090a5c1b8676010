"""Remove statements whose results nobody uses.

Before:                                     After:
```
a: f32[4] = pointwise …                     b: f32[4] = pointwise …
b: f32[4] = pointwise …                     return b
return b
```
A library call stays when it changes memory or draws random numbers, since the next draw depends on it.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.ir.program import CopyBack, ExternKernel, Program, Statement
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.dependencies import effects, output_buffers

RANDOM_OPERATORS = ("rand", "dropout", "bernoulli", "normal", "uniform", "multinomial", "poisson")
"""Fragments of the names of operators that draw random numbers."""


def remove_dead_code(program: Program, analysis: Analysis) -> Program:
    """Walk backwards from the outputs; what is never met is dead."""
    needed = set(output_buffers(program))
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        effect = effects(statement, analysis)
        if not needed.isdisjoint(effect.writes) or _has_effect(statement):
            kept.append(statement)
            needed.update(effect.reads)
            needed.update(effect.overwrites)
    if len(kept) == len(program.statements):
        return program
    return replace(program, statements=tuple(reversed(kept)))


def _has_effect(statement: Statement) -> bool:
    match statement:
        case CopyBack():
            return True
        case ExternKernel(operator=operator, mutates=mutates):
            return bool(mutates) or any(fragment in operator for fragment in RANDOM_OPERATORS)
        case _:
            return False
