"""Instructions for imports and the `match` statement."""

from __future__ import annotations

from typing import Any

from fusewright.capture.interpreter.frame import Frame
from fusewright.capture.interpreter.instructions.table import opcode
from fusewright.capture.values.base import MISSING, evaluate
from fusewright.capture.values.constant import NONE, ConstantValue, boolean
from fusewright.capture.values.sequences import TupleValue


@opcode("IMPORT_NAME")
def import_name(frame: Frame, name: str) -> None:
    names = frame.stack.pop().constant()
    level = frame.stack.pop().constant()
    frame.stack.append(frame.machine.import_module(frame.namespace, name, names, level))


@opcode("IMPORT_FROM")
def import_from(frame: Frame, name: str) -> None:
    attribute = frame.machine.attribute_or_none(frame.stack[-1], name)
    if attribute is None:
        module = frame.stack[-1].real()
        place = getattr(module, "__file__", None) or "unknown location"
        frame.machine.raise_error(
            ImportError, f"cannot import name {name!r} from {module.__name__!r} ({place})"
        )
    frame.stack.append(attribute)


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


_MATCHES_ITSELF = (
    bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple,
)  # fmt: skip
"""Classes whose one positional pattern is matched with the subject itself."""


@opcode("MATCH_CLASS")
def match_class(frame: Frame, count: int) -> None:
    machine = frame.machine
    names = [name.constant() for name in machine.items(frame.stack.pop())]
    cls = frame.stack.pop().to_python()
    subject = frame.stack.pop()
    if not isinstance(cls, type):
        evaluate(machine, _match_none, cls)
    if not issubclass(subject.python_type(), cls):
        frame.stack.append(NONE)
        return
    positional = _positional_names(frame, cls, count)
    parts = [subject] if positional is None else []
    for name in (*(positional or ()), *names):
        part = machine.attribute_or_none(subject, name)
        if part is None:
            frame.stack.append(NONE)
            return
        parts.append(part)
    frame.stack.append(TupleValue(tuple, parts))


def _match_none(pattern: Any) -> None:
    match None:
        case pattern():
            pass


def _positional_names(frame: Frame, cls: type, count: int) -> tuple[str, ...] | None:
    """The attributes that the positional patterns of a class stand for; None for the subject."""
    machine = frame.machine
    raw, source = machine.class_attribute(cls, "__match_args__")
    itself = raw is MISSING and issubclass(cls, _MATCHES_ITSELF)
    names = () if raw is MISSING else machine.bind(raw, source, None, cls).to_python()
    if not isinstance(names, tuple):
        machine.raise_error(
            TypeError,
            f"{cls.__name__}.__match_args__ must be a tuple (got {type(names).__name__})",
        )
    allowed = 1 if itself else len(names)
    if count > allowed:
        machine.raise_error(
            TypeError,
            f"{cls.__name__}() accepts {allowed} positional sub-pattern{'s' * (allowed != 1)} "
            f"({count} given)",
        )
    return None if itself and count else names[:count]
