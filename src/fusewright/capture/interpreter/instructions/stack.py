"""Instructions that move values on the stack, jump, or do nothing."""

from __future__ import annotations

from typing import Any

from fusewright.capture.interpreter.checks import condition
from fusewright.capture.interpreter.frame import NULL, Frame
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.constant import NONE, ConstantValue


@opcode("NOP", "RESUME", "PRECALL", "CACHE", "COPY_FREE_VARS")
def nothing(frame: Frame, operand: Any) -> None:
    """Instructions that matter to CPython's machinery only."""


# -- the stack ------------------------------------------------------------------------------------


@opcode("POP_TOP")
def pop_top(frame: Frame, operand: Any) -> None:
    frame.stack.pop()


@opcode("PUSH_NULL")
def push_null(frame: Frame, operand: Any) -> None:
    frame.stack.append(NULL)


@opcode("COPY")
def copy(frame: Frame, depth: int) -> None:
    frame.stack.append(frame.stack[-depth])


@opcode("SWAP")
def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@opcode("LOAD_CONST")
def load_const(frame: Frame, value: ConstantValue) -> None:
    constant = value.value
    frame.stack.append(frame.machine.new(constant) if type(constant) is tuple else value)


# -- jumps ----------------------------------------------------------------------------------------


@opcode("JUMP", "JUMP_NO_INTERRUPT")
def jump(frame: Frame, target: int) -> None:
    frame.position = target


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, target: int) -> None:
    if condition(frame, frame.position - 1, frame.stack.pop()):
        frame.position = target


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, target: int) -> None:
    if not condition(frame, frame.position - 1, frame.stack.pop()):
        frame.position = target


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, target: int) -> None:
    if frame.machine.identical(frame.stack.pop(), NONE):
        frame.position = target


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, target: int) -> None:
    if not frame.machine.identical(frame.stack.pop(), NONE):
        frame.position = target


@opcode("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(frame: Frame, target: int) -> None:
    if frame.machine.truth(frame.stack[-1]):
        frame.position = target
    else:
        frame.stack.pop()


@opcode("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(frame: Frame, target: int) -> None:
    if frame.machine.truth(frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.position = target
