"""The table of instructions: a handler for each, by the names that all CPython versions share.

A handler takes the frame and the instruction's operand. It changes the frame's stack and variables,
may set the frame's position (a jump), and returns a value only to leave the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.bytecode.operations import OPERATIONS
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import NULL, Frame, Handler
from fusewright.capture.values.base import Value
from fusewright.errors import Unsupported

OPCODES: Final[dict[str, Handler]] = {}
"""The handler of each instruction, by name."""


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Enter a handler in the table."""

    def enter(handler: Handler) -> Handler:
        for name in names:
            assert not OPERATIONS[name].refusal, "a refused instruction is not executed"
            OPCODES[name] = handler
        return handler

    return enter


def unknown_opcode(frame: Frame, name: Any) -> Value | None:
    """Stands for every instruction that is not in the table; its operand is the instruction's
    name.
    """
    raise refusal(frame, name)


def refusal(frame: Frame, name: str) -> Unsupported:
    """The error for an instruction that is not interpreted."""
    row = OPERATIONS.get(name)
    why = row.refusal if row else "capture does not interpret it"
    return frame.machine.unsupported(reasons.UNKNOWN_OPCODE, opcode=name, why=why)


def take(frame: Frame, count: int) -> list[Any]:
    """Pop the `count` top values, in the order in which they were pushed."""
    if not count:
        return []
    operands = frame.stack[-count:]
    del frame.stack[-count:]
    return operands


def push_callable(frame: Frame, function: Value) -> None:
    """Push a callable and the NULL that a call wants beside it."""
    frame.stack += (function, NULL) if VERSION.null_above_callable else (NULL, function)
