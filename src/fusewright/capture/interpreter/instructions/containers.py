"""Instructions that build, extend and unpack containers, and format text."""

from __future__ import annotations

from typing import Any, Final

from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import Frame
from fusewright.capture.interpreter.instructions.table import opcode, take
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import NONE, ConstantValue
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.sequences import ListValue, SequenceValue, SliceValue, TupleValue
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import UnknownValue

# -- new containers -------------------------------------------------------------------------------


@opcode("BUILD_TUPLE")
def build_tuple(frame: Frame, count: int) -> None:
    frame.stack.append(TupleValue(tuple, take(frame, count)))


@opcode("BUILD_LIST")
def build_list(frame: Frame, count: int) -> None:
    frame.stack.append(ListValue(list, take(frame, count)))


@opcode("BUILD_SET")
def build_set(frame: Frame, count: int) -> None:
    members = take(frame, count)
    result = SetValue(set)
    for member in members:
        result.add(frame.machine, member)
    frame.stack.append(result)


@opcode("BUILD_MAP")
def build_map(frame: Frame, count: int) -> None:
    items = take(frame, 2 * count)
    result = DictValue(dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        result.put(frame.machine, key, value)
    frame.stack.append(result)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, count: int) -> None:
    keys = frame.machine.items(frame.stack.pop())
    result = DictValue(dict)
    for key, value in zip(keys, take(frame, count), strict=True):
        result.put(frame.machine, key, value)
    frame.stack.append(result)


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, count: int) -> None:
    parts = take(frame, count)
    frame.stack.append(SliceValue(*parts, *[NONE] * (3 - count)))


# -- text -----------------------------------------------------------------------------------------

CONVERSIONS: Final = {1: str, 2: repr, 3: ascii}
"""The functions that `!s`, `!r` and `!a` call, by operand."""


@opcode("BUILD_STRING")
def build_string(frame: Frame, count: int) -> None:
    parts = take(frame, count)
    unknown = next((part for part in parts if isinstance(part, UnknownValue)), None)
    text = unknown or ConstantValue("".join([part.constant() for part in parts]))
    frame.stack.append(text)


@opcode("FORMAT_VALUE")
def format_value(frame: Frame, flags: int) -> None:
    specification = frame.stack.pop() if flags & 4 else ConstantValue("")
    if flags & 3:
        convert_value(frame, flags & 3)
    frame.stack.append(specification)
    format_with_specification(frame, None)


@opcode("CONVERT_VALUE")
def convert_value(frame: Frame, conversion: int) -> None:
    function = CONVERSIONS[conversion]
    frame.stack.append(frame.machine.call_object(function, None, [frame.stack.pop()], {}))


@opcode("FORMAT_SIMPLE")
def format_simple(frame: Frame, operand: Any) -> None:
    frame.stack.append(ConstantValue(""))
    format_with_specification(frame, None)


@opcode("FORMAT_WITH_SPEC")
def format_with_specification(frame: Frame, operand: Any) -> None:
    specification, value = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(frame.machine.call_object(format, None, [value, specification], {}))


# -- adding to containers -------------------------------------------------------------------------


@opcode("LIST_APPEND")
def list_append(frame: Frame, depth: int) -> None:
    item = frame.stack.pop()
    frame.stack[-depth].append(frame.machine, item)


@opcode("SET_ADD")
def set_add(frame: Frame, depth: int) -> None:
    member = frame.stack.pop()
    frame.stack[-depth].add(frame.machine, member)


@opcode("MAP_ADD")
def map_add(frame: Frame, depth: int) -> None:
    value = frame.stack.pop()
    key = frame.stack.pop()
    frame.stack[-depth].put(frame.machine, key, value)


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, depth: int) -> None:
    added = frame.stack.pop()
    if not _is_iterable(frame, added):
        cls = added.python_type().__name__
        frame.machine.raise_error(TypeError, f"Value after * must be an iterable, not {cls}")
    target = frame.stack[-depth]
    for item in list(frame.machine.items(added)):
        target.append(frame.machine, item)


@opcode("SET_UPDATE")
def set_update(frame: Frame, depth: int) -> None:
    added = frame.stack.pop()
    frame.stack[-depth].update(frame.machine, added)


@opcode("DICT_UPDATE")
def dict_update(frame: Frame, depth: int) -> None:
    added = frame.stack.pop()
    if not _is_mapping(frame, added):
        cls = added.python_type().__name__
        frame.machine.raise_error(TypeError, f"{cls!r} object is not a mapping")
    for key, value in frame.machine.mapping_entries(added):
        frame.stack[-depth].put(frame.machine, key, value)


@opcode("DICT_MERGE")
def dict_merge(frame: Frame, depth: int) -> None:
    """Add keyword arguments to those of a call whose callable lies below its other arguments."""
    machine = frame.machine
    added = frame.stack.pop()
    target = frame.stack[-depth]
    function = frame.stack[-depth - 2 - VERSION.null_above_callable]
    if not _is_mapping(frame, added):
        machine.raise_error(
            TypeError,
            f"{_function_text(frame, function)} argument after ** must be a mapping, "
            f"not {added.python_type().__name__}",
        )
    for key, value in machine.mapping_entries(added):
        if target.contains(machine, key):
            machine.raise_error(
                TypeError,
                f"{_function_text(frame, function)} got multiple values for keyword argument "
                f"{key.constant()!r}",
            )
        target.put(machine, key, value)


def _is_iterable(frame: Frame, value: Value) -> bool:
    names = ("__iter__", "__getitem__")
    return any(frame.machine.special(value, name) is not None for name in names)


def _is_mapping(frame: Frame, value: Value) -> bool:
    return frame.machine.attribute_or_none(value, "keys") is not None


def _function_text(frame: Frame, function: Value) -> str:
    """A callable as CPython's messages name it."""
    name = frame.machine.attribute_or_none(function, "__qualname__")
    if name is None:
        return function.describe()
    module = frame.machine.attribute_or_none(function, "__module__")
    prefix = "" if module is None else module.constant()
    return (
        f"{name.constant()}()"
        if prefix in ("", None, "builtins")
        else (f"{prefix}.{name.constant()}()")
    )


@opcode("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, operand: Any) -> None:
    frame.stack[-1] = TupleValue(tuple, frame.machine.items(frame.stack[-1]))


# -- unpacking ------------------------------------------------------------------------------------


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, count: int) -> None:
    machine = frame.machine
    value = frame.stack.pop()
    if isinstance(value, SequenceValue) and value.cls in (list, tuple):
        items = list(value.items(machine)[: count + 1])
    else:
        items = _next_items(machine, _iterator_to_unpack(frame, value), count + 1)
    if len(items) < count:
        machine.raise_error(
            ValueError, f"not enough values to unpack (expected {count}, got {len(items)})"
        )
    if len(items) > count:
        machine.raise_error(ValueError, f"too many values to unpack (expected {count})")
    frame.stack.extend(reversed(items))


@opcode("UNPACK_EX")
def unpack_with_rest(frame: Frame, counts: int) -> None:
    machine = frame.machine
    before, after = counts & 0xFF, counts >> 8
    iterator = _iterator_to_unpack(frame, frame.stack.pop())
    items = _next_items(machine, iterator, before)
    if len(items) == before:
        items += machine.items(iterator)
    if len(items) < before + after:
        machine.raise_error(
            ValueError,
            f"not enough values to unpack (expected at least {before + after}, got {len(items)})",
        )
    rest = ListValue(list, items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], rest, *items[len(items) - after :]]))


def _iterator_to_unpack(frame: Frame, value: Value) -> Value:
    if not _is_iterable(frame, value):
        cls = value.python_type().__name__
        frame.machine.raise_error(TypeError, f"cannot unpack non-iterable {cls} object")
    return frame.machine.iterate(value)


def _next_items(machine: Machine, iterator: Value, count: int) -> list[Value]:
    """The next items of an iterator, `count` at most."""
    items: list[Value] = []
    while len(items) < count and (item := machine.next(iterator)) is not None:
        items.append(item)
    return items
