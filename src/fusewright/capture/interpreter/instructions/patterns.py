"""Instructions for imports and the `match` statement."""

from __future__ import annotations

from typing import Any

from fusewright.capture.interpreter.frame import Frame
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.constant import NONE, ConstantValue, boolean
from fusewright.capture.values.sequences import TupleValue


@opcode("IMPORT_NAME")
def import_name(frame: Frame, name: str) -> None:
    names = frame.stack.pop().constant()
    level = frame.stack.pop().constant()
    frame.stack.append(frame.machine.import_module(frame.namespace, name, names, level))


@opcode("IMPORT_FROM")
def import_from(frame: Frame, name: str) -> None:
    found = frame.machine.attribute_or_none(frame.stack[-1], name)
    if found is None:
        module = frame.stack[-1].real()
        frame.machine.raise_error(
            ImportError, f"cannot import name {name!r} from {module.__name__!r}"
        )
    frame.stack.append(found)


@opcode("GET_LEN")
def get_length(frame: Frame, operand: Any) -> None:
    frame.stack.append(ConstantValue(frame.machine.length(frame.stack[-1])))


@opcode("MATCH_SEQUENCE")
def match_sequence(frame: Frame, operand: Any) -> None:
    cls = frame.stack[-1].python_type()
    frame.stack.append(boolean(bool(cls.__flags__ & (1 << 5))))


@opcode("MATCH_MAPPING")
def match_mapping(frame: Frame, operand: Any) -> None:
    cls = frame.stack[-1].python_type()
    frame.stack.append(boolean(bool(cls.__flags__ & (1 << 6))))


@opcode("MATCH_KEYS")
def match_keys(frame: Frame, operand: Any) -> None:
    machine = frame.machine
    keys = machine.items(frame.stack[-1])
    subject = frame.stack[-2]
    if all(machine.contains(subject, key) for key in keys):
        frame.stack.append(TupleValue(tuple, [machine.get_item(subject, key) for key in keys]))
    else:
        frame.stack.append(NONE)


@opcode("MATCH_CLASS")
def match_class(frame: Frame, count: int) -> None:
    machine = frame.machine
    names = [name.constant() for name in machine.items(frame.stack.pop())]
    cls = frame.stack.pop().constant()
    subject = frame.stack.pop()
    if not issubclass(subject.python_type(), cls):
        frame.stack.append(NONE)
        return
    itself = count == 1 and cls in (
        bool,
        bytearray,
        bytes,
        dict,
        float,
        frozenset,
        int,
        list,
        set,
        str,
        tuple,
    )
    positional = () if itself else getattr(cls, "__match_args__", ())[:count]
    found = [subject] if itself else []
    for name in (*positional, *names):
        part = machine.attribute_or_none(subject, name)
        if part is None:
            frame.stack.append(NONE)
            return
        found.append(part)
    frame.stack.append(TupleValue(tuple, found))
