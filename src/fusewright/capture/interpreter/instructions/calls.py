"""Instructions that call, make functions, and return."""

from __future__ import annotations

import builtins
from typing import Any, Final

from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import NULL, Frame, Handler
from fusewright.capture.interpreter.instructions import containers, exceptions, operators
from fusewright.capture.interpreter.instructions.table import opcode, refusal, take
from fusewright.capture.values.base import Value
from fusewright.capture.values.functions import BuiltinValue, FunctionValue
from fusewright.capture.values.mappings import DictValue

# -- calls ----------------------------------------------------------------------------------------


@opcode("KW_NAMES")
def keyword_names(frame: Frame, names: tuple[str, ...]) -> None:
    frame.keyword_names = names


@opcode("CALL")
def call(frame: Frame, count: int) -> None:
    names, frame.keyword_names = frame.keyword_names, ()
    _call(frame, count, names)


@opcode("CALL_KW")
def call_with_keywords(frame: Frame, count: int) -> None:
    _call(frame, count, frame.stack.pop().constant())


def _call(frame: Frame, count: int, names: tuple[str, ...]) -> None:
    """Call with `count` arguments from the stack, the last ones named."""
    operands = take(frame, count)
    split = count - len(names)
    keywords = dict(zip(names, operands[split:], strict=True))
    frame.stack.append(frame.machine.call(*_callee(frame, operands[:split]), keywords))


def _callee(frame: Frame, arguments: list[Value]) -> tuple[Value, list[Value]]:
    """Pop the callable and its companion: NULL beside the callable, or an unbound method under its
    object.
    """
    upper, lower = frame.stack.pop(), frame.stack.pop()
    if VERSION.null_above_callable:
        return lower, arguments if upper is NULL else [upper, *arguments]
    return (upper, arguments) if lower is NULL else (lower, [upper, *arguments])


@opcode("CALL_FUNCTION_EX")
def call_unpacked(frame: Frame, has_keywords: int) -> None:
    machine = frame.machine
    keywords = {}
    if has_keywords & 1:
        for key, value in machine.mapping_entries(frame.stack.pop()):
            if not issubclass(key.python_type(), str):
                machine.raise_error(TypeError, "keywords must be strings")
            keywords[key.constant()] = value
    arguments = list(machine.items(frame.stack.pop()))
    function, arguments = _callee(frame, arguments)
    frame.stack.append(machine.call(function, arguments, keywords))


# -- functions of the interpreter that have numbers -----------------------------------------------

INTRINSICS: Final[dict[int, Handler]] = {
    3: exceptions.convert_stop_iteration,
    5: operators.positive,
    6: containers.list_to_tuple,
}
"""The functions of `CALL_INTRINSIC_1`, by operand. The others belong to asynchronous generators, to
the interactive prompt, to `import *` and to the syntax of type parameters.
"""


@opcode("CALL_INTRINSIC_1")
def call_intrinsic(frame: Frame, number: int) -> None:
    function = INTRINSICS.get(number)
    if function is None:
        raise refusal(frame, f"CALL_INTRINSIC_1 {number}")
    function(frame, None)


# -- functions ------------------------------------------------------------------------------------

FUNCTION_PARTS: Final = {1: "defaults", 2: "keyword_defaults", 4: "annotations", 8: "cells"}
"""The parts that a new function is given, by flag; on the stack the highest comes uppermost."""


@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, flags: int | None) -> None:
    function = FunctionValue(frame.stack.pop().constant(), frame.namespace)
    for flag in reversed(FUNCTION_PARTS):
        if (flags or 0) & flag:
            _set_part(frame, function, flag, frame.stack.pop())
    frame.stack.append(function)


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, flag: int) -> None:
    function = frame.stack.pop()
    _set_part(frame, function, flag, frame.stack.pop())
    frame.stack.append(function)


def _set_part(frame: Frame, function: FunctionValue, flag: int, part: Value) -> None:
    """Give a new function its defaults or its closure."""
    machine = frame.machine
    match FUNCTION_PARTS[flag]:
        case "defaults":
            function.defaults = list(machine.items(part))
        case "keyword_defaults":
            entries = machine.mapping_entries(part)
            function.keyword_defaults = {key.constant(): value for key, value in entries}
        case "cells":
            function.cells = tuple(machine.items(part))  # type: ignore[arg-type]
        case "annotations":
            items = machine.items(part)
            annotations = DictValue(dict)
            for name, annotation in zip(items[::2], items[1::2], strict=True):
                annotations.put(machine, name, annotation)
            function.store(machine, "__annotations__", annotations)


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, operand: Any) -> None:
    frame.stack.append(BuiltinValue(builtins.__build_class__))


@opcode("RETURN_VALUE")
def return_value(frame: Frame, operand: Any) -> Value:
    return frame.stack.pop()  # type: ignore[no-any-return]


@opcode("RETURN_CONST")
def return_const(frame: Frame, value: Any) -> Value:
    return frame.machine.new(value)
