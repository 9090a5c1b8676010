"""Instructions for iteration and for generators."""

from __future__ import annotations

import inspect
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import Frame, Yielded
from fusewright.capture.interpreter.generator_frame import (
    GeneratorFrame,
    finish_send,
    stop_value,
)
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.base import TracedError, Value
from fusewright.capture.values.constant import NONE
from fusewright.capture.values.iterators import GeneratorValue, IteratorValue

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
    return GeneratorValue(GeneratorFrame(frame))


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, operand: Any) -> Value | None:
    raise Yielded(frame.stack.pop())


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iterator(frame: Frame, operand: Any) -> None:
    if not isinstance(frame.stack[-1], GeneratorValue):
        get_iterator(frame, operand)


@opcode("SEND")
def send(frame: Frame, target: int) -> None:
    machine = frame.machine
    sent = frame.stack.pop()
    receiver = frame.stack[-1]
    try:
        match receiver:
            case GeneratorValue():
                item = receiver.frame.resume(sent)
                result = receiver.frame.result
            case IteratorValue() if machine.identical(sent, NONE):
                item, result = receiver.advance(machine), NONE
            case _ if machine.identical(sent, NONE):
                item = machine.call_special(receiver, "__next__", [])
            case _:
                item = machine.call(machine.attribute(receiver, "send"), [sent])
    except TracedError as error:
        if not error.is_caught_as(StopIteration):
            raise
        item, result = None, stop_value(error.value)
    if item is not None:
        frame.stack.append(item)
    else:
        finish_send(frame, result)
        frame.position = target


@opcode("END_SEND")
def end_send(frame: Frame, operand: Any) -> None:
    del frame.stack[-2]


@opcode("CLEANUP_THROW")
def cleanup_throw(frame: Frame, operand: Any) -> None:
    raised = frame.stack[-1]
    if not issubclass(raised.python_type(), StopIteration):
        raise TracedError(frame.stack.pop())
    del frame.stack[-3:]
    frame.stack += (NONE, stop_value(raised))
