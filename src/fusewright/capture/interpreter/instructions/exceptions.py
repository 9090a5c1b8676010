"""Instructions for exceptions and `with`."""

from __future__ import annotations

from typing import Any

from fusewright.capture.interpreter.frame import Frame, SavedException, stopped_generator
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.base import TracedError, Value
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import ConstantValue, boolean
from fusewright.capture.values.objects import ExceptionValue, ObjectValue, TracebackValue


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, operand: Any) -> None:
    frame.stack.append(ClassValue(AssertionError))


@opcode("RAISE_VARARGS")
def raise_exception(frame: Frame, count: int) -> Value | None:
    machine = frame.machine
    cause = frame.stack.pop() if count == 2 else None
    if count == 0:
        if machine.handled is None:
            machine.raise_error(RuntimeError, "No active exception to reraise")
        raise TracedError(machine.handled)
    raised = _exception(frame, frame.stack.pop(), "exceptions must derive from BaseException")
    if isinstance(raised, ExceptionValue):
        raised.follow(machine)
    if cause is not None and isinstance(raised, ObjectValue):
        if not (type(cause) is ConstantValue and cause.value is None):
            cause = _exception(frame, cause, "exception causes must derive from BaseException")
        raised.known |= {"__cause__": cause, "__suppress_context__": boolean(True)}
    raise TracedError(raised)


def _exception(frame: Frame, raised: Value, otherwise: str) -> Value:
    """The exception that `raise` raises: its operand, or an instance of a class of exceptions."""
    if isinstance(raised, ClassValue) and issubclass(raised.cls, BaseException):
        raised = frame.machine.call(raised, [])
    if not issubclass(raised.python_type(), BaseException):
        frame.machine.raise_error(TypeError, otherwise)
    return raised


@opcode("RERAISE")
def reraise(frame: Frame, depth: int) -> Value | None:
    raise TracedError(frame.stack.pop())


@opcode("PUSH_EXC_INFO")
def push_exception_info(frame: Frame, operand: Any) -> None:
    raised = frame.stack.pop()
    frame.stack += (SavedException(frame.machine.handled, raised, frame.raised_at), raised)
    frame.machine.handled = raised


@opcode("POP_EXCEPT")
def pop_exception(frame: Frame, operand: Any) -> None:
    frame.machine.handled = frame.stack.pop().previous


@opcode("CHECK_EXC_MATCH")
def check_exception_match(frame: Frame, operand: Any) -> None:
    expected = frame.stack.pop().to_python()
    classes = expected if isinstance(expected, tuple) else (expected,)
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        frame.machine.raise_error(
            TypeError, "catching classes that do not inherit from BaseException is not allowed"
        )
    frame.stack.append(boolean(issubclass(frame.stack[-1].python_type(), classes)))


def convert_stop_iteration(frame: Frame, operand: Any) -> None:
    """A StopIteration on the stack, on its way out of a generator, becomes a RuntimeError."""
    raised = frame.stack[-1]
    if issubclass(raised.python_type(), StopIteration):
        frame.stack[-1] = stopped_generator(raised)


# -- with -----------------------------------------------------------------------------------------


@opcode("BEFORE_WITH")
def before_with(frame: Frame, operand: Any) -> None:
    machine = frame.machine
    manager = frame.stack.pop()
    enter = machine.special(manager, "__enter__")
    leave = machine.special(manager, "__exit__") if enter is not None else None
    if enter is None or leave is None:
        cls = manager.python_type().__name__
        missed = "" if enter is None else " (missed __exit__ method)"
        machine.raise_error(
            TypeError, f"{cls!r} object does not support the context manager protocol{missed}"
        )
    frame.stack.append(leave)
    frame.stack.append(machine.call(enter, []))


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, operand: Any) -> None:
    # Stack: exit function, offset, previous exception, exception.
    raised = frame.stack[-1]
    arguments = [ClassValue(raised.python_type()), raised, TracebackValue()]
    frame.stack.append(frame.machine.call(frame.stack[-4], arguments))
