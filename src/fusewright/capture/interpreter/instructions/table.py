"""The table of instructions: a handler for each, by the names that all CPython versions share.

A handler takes the frame and the instruction's operand. It changes the frame's stack and variables,
may set the frame's position (a jump), and returns a value only to leave the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import NULL, Frame, Handler
from fusewright.capture.values.base import Value
from fusewright.errors import Unsupported

OPCODES: Final[dict[str, Handler]] = {}
"""The handler of each instruction, by name."""

_ASYNCHRONOUS: Final = "asynchronous functions suspend themselves for an event loop"
_STAR: Final = "`except*` tells by their tracebacks which exceptions were raised anew"
_TOP_LEVEL: Final = "no function contains it"
_INTERNAL: Final = "no code object contains it"

REFUSED: Final[dict[str, str]] = {
    "ASYNC_GEN_WRAP": _ASYNCHRONOUS,
    "BEFORE_ASYNC_WITH": _ASYNCHRONOUS,
    "END_ASYNC_FOR": _ASYNCHRONOUS,
    "GET_AITER": _ASYNCHRONOUS,
    "GET_ANEXT": _ASYNCHRONOUS,
    "GET_AWAITABLE": _ASYNCHRONOUS,
    "CHECK_EG_MATCH": _STAR,
    "PREP_RERAISE_STAR": _STAR,
    "CALL_INTRINSIC_2": "it is part of `except*` or makes type parameters",
    "IMPORT_STAR": _TOP_LEVEL,
    "PRINT_EXPR": _TOP_LEVEL,
    "END_FOR": "a loop that ends passes it over",
    "ENTER_EXECUTOR": _INTERNAL,
    "EXIT_INIT_CHECK": _INTERNAL,
    "INTERPRETER_EXIT": _INTERNAL,
    "RESERVED": _INTERNAL,
}
"""The instructions that have no handler, and why: each breaks the graph."""


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Enter a handler in the table."""

    def enter(handler: Handler) -> Handler:
        for name in names:
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
    why = REFUSED.get(name, "capture does not interpret it")
    return frame.machine.unsupported(reasons.UNKNOWN_OPCODE, opcode=name, why=why)


def take(frame: Frame, count: int) -> list[Any]:
    """Pop the `count` top values, in the order in which they were pushed."""
    if not count:
        return []
    taken = frame.stack[-count:]
    del frame.stack[-count:]
    return taken


def push_callable(frame: Frame, function: Value) -> None:
    """Push a callable and the NULL that a call wants beside it."""
    frame.stack += (function, NULL) if VERSION.null_above_callable else (NULL, function)
