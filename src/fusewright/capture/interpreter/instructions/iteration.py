"""Instructions for iteration and for generators."""

from __future__ import annotations

import inspect
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import Frame, Yielded
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.base import TracedError, Value
from fusewright.capture.values.constant import NONE
from fusewright.capture.values.iterators import GeneratorValue

# -- iteration ------------------------------------------------------------------------------------


@opcode("GET_ITER")
def get_iterator(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.iterate(frame.stack[-1])


@opcode("FOR_ITER")
def for_iterator(frame: Frame, target: int) -> None:
    item = frame.machine.next(frame.stack[-1])
    if item is None:
        frame.stack.pop()
        frame.position = target + len(VERSION.skipped_at_loop_end)
    else:
        frame.stack.append(item)


# -- generators -----------------------------------------------------------------------------------


@opcode("RETURN_GENERATOR")
def return_generator(frame: Frame, operand: Any) -> Value:
    if not frame.code.co_flags & inspect.CO_GENERATOR:
        raise frame.machine.unsupported(reasons.ASYNCHRONOUS)
    # The frame starts again, at the instruction after this one, when the generator is first
    # advanced: CPython pushes
    # a value for the POP_TOP found there.
    suspended = Frame(frame.machine, frame.function, frame.locals, frame.program, frame.module_path)
    suspended.cells = frame.cells
    suspended.position = frame.position
    suspended.stack.append(NONE)
    return GeneratorValue(suspended)


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, operand: Any) -> Value | None:
    raise Yielded(frame.stack.pop())


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iterator(frame: Frame, operand: Any) -> None:
    if not isinstance(frame.stack[-1], GeneratorValue):
        get_iterator(frame, operand)


@opcode("SEND")
def send(frame: Frame, target: int) -> None:
    sent = frame.stack.pop()
    receiver = frame.stack[-1]
    item = frame.machine.send(receiver, sent)
    if item is None:
        frame.stack[-1] = frame.machine.generator_result or NONE
        frame.position = target
    else:
        frame.stack.append(item)


@opcode("END_SEND")
def end_send(frame: Frame, operand: Any) -> None:
    del frame.stack[-2]


@opcode("CLEANUP_THROW")
def cleanup_throw(frame: Frame, operand: Any) -> None:
    raised = frame.stack[-1]
    if not issubclass(raised.python_type(), StopIteration):
        raise TracedError(frame.stack.pop())
    del frame.stack[-3:]
    frame.stack += (NONE, frame.machine.attribute(raised, "value"))
