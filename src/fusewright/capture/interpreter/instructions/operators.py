"""Instructions for attributes, items and operators."""

from __future__ import annotations

from typing import Any, Final

from fusewright.capture.interpreter.checks import condition
from fusewright.capture.interpreter.frame import Frame
from fusewright.capture.interpreter.instructions.table import opcode, push_callable
from fusewright.capture.values.constant import NONE, boolean
from fusewright.capture.values.sequences import SliceValue

# -- attributes and items -------------------------------------------------------------------------


@opcode("LOAD_ATTR")
def load_attribute(frame: Frame, name: str) -> None:
    frame.stack[-1] = frame.machine.attribute(frame.stack[-1], name)


@opcode("LOAD_METHOD")
def load_method(frame: Frame, name: str) -> None:
    push_callable(frame, frame.machine.attribute(frame.stack.pop(), name))


@opcode("LOAD_SUPER_ATTR", "LOAD_ZERO_SUPER_ATTR")
def load_super_attribute(frame: Frame, name: str) -> None:
    """`super(cls, instance).name`: the three are on the stack, also for `super()` alone."""
    machine = frame.machine
    instance, cls, constructor = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    owner = machine.call(constructor, [cls, instance])
    frame.stack.append(machine.attribute(owner, name))


@opcode("LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_METHOD")
def load_super_method(frame: Frame, name: str) -> None:
    load_super_attribute(frame, name)
    push_callable(frame, frame.stack.pop())


@opcode("STORE_ATTR")
def store_attribute(frame: Frame, name: str) -> None:
    owner = frame.stack.pop()
    frame.machine.set_attribute(owner, name, frame.stack.pop())


@opcode("DELETE_ATTR")
def delete_attribute(frame: Frame, name: str) -> None:
    frame.stack.pop().delete_attribute(frame.machine, name)


@opcode("BINARY_SUBSCR")
def binary_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    frame.stack[-1] = frame.machine.get_item(frame.stack[-1], key)


@opcode("STORE_SUBSCR")
def store_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    container = frame.stack.pop()
    frame.machine.call_special(container, "__setitem__", [key, frame.stack.pop()])


@opcode("DELETE_SUBSCR")
def delete_subscript(frame: Frame, operand: Any) -> None:
    key = frame.stack.pop()
    frame.machine.call_special(frame.stack.pop(), "__delitem__", [key])


@opcode("BINARY_SLICE")
def binary_slice(frame: Frame, operand: Any) -> None:
    stop, start = frame.stack.pop(), frame.stack.pop()
    frame.stack[-1] = frame.machine.get_item(frame.stack[-1], SliceValue(start, stop, NONE))


@opcode("STORE_SLICE")
def store_slice(frame: Frame, operand: Any) -> None:
    stop, start = frame.stack.pop(), frame.stack.pop()
    container = frame.stack.pop()
    key = SliceValue(start, stop, NONE)
    frame.machine.call_special(container, "__setitem__", [key, frame.stack.pop()])


# -- operators ------------------------------------------------------------------------------------

BINARY_OPERATORS: Final = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and_",
    "|": "or_",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
"""Functions of module `operator` by symbol; `+=` is `iadd`."""

IN_PLACE_OPERATORS: Final = {
    f"{symbol}=": f"i{name.strip('_')}" for symbol, name in BINARY_OPERATORS.items()
}


@opcode("BINARY_OP")
def binary_operation(frame: Frame, symbol: str) -> None:
    right = frame.stack.pop()
    name = BINARY_OPERATORS.get(symbol) or IN_PLACE_OPERATORS[symbol]
    frame.stack[-1] = frame.machine.binary(name, frame.stack[-1], right)


@opcode("UNARY_NEGATIVE")
def negative(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("neg", frame.stack[-1])


@opcode("UNARY_POSITIVE")
def positive(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("pos", frame.stack[-1])


@opcode("UNARY_INVERT")
def invert(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = frame.machine.unary("invert", frame.stack[-1])


@opcode("UNARY_NOT")
def logical_not(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = boolean(not frame.machine.truth(frame.stack[-1]))


@opcode("TO_BOOL")
def to_bool(frame: Frame, operand: Any) -> None:
    value, jump = frame.stack[-1], frame.position
    if frame.decoded.instructions[jump].name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        frame.stack[-1] = boolean(condition(frame, jump, value))
    else:
        frame.stack[-1] = boolean(frame.machine.truth(value))


@opcode("COMPARE_OP")
def compare(frame: Frame, symbol: str) -> None:
    right = frame.stack.pop()
    frame.stack[-1] = frame.machine.compare(symbol, frame.stack[-1], right)


@opcode("IS_OP")
def is_operation(frame: Frame, negated: int) -> None:
    right = frame.stack.pop()
    frame.stack[-1] = boolean(frame.machine.identical(frame.stack[-1], right) != bool(negated))


@opcode("CONTAINS_OP")
def contains_operation(frame: Frame, negated: int) -> None:
    container = frame.stack.pop()
    is_member = frame.machine.contains(container, frame.stack[-1])
    frame.stack[-1] = boolean(is_member != bool(negated))
