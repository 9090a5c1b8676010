"""The execution of each bytecode instruction: a handler an instruction, a file a theme."""

from __future__ import annotations

from fusewright.capture.interpreter.instructions import (
    calls,
    containers,
    exceptions,
    iteration,
    operators,
    patterns,
    stack,
    variables,
)
from fusewright.capture.interpreter.instructions.table import OPCODES, unknown_opcode

THEMES = (calls, containers, exceptions, iteration, operators, patterns, stack, variables)
"""The files whose import fills the table."""

__all__ = ["OPCODES", "THEMES", "unknown_opcode"]
