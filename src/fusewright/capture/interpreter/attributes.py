"""Class attributes and descriptors: what a class holds for a name, and what reading it through an
instance gives.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.sources import AttributeSource, ConstantSource, Source, TypeAttributeSource
from fusewright.capture.values.base import (
    IMMUTABLE_TYPE,
    MISSING,
    Machine,
    Value,
)
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.functions import BuiltinValue, FunctionValue, MethodValue
from fusewright.capture.values.mappings import InstanceDictValue
from fusewright.capture.values.objects import ObjectValue
from fusewright.records import record


@record
class WrittenAttribute:
    """An attribute that the traced program set on an existing class."""

    value: Value


def find_class_attribute(cls: type, name: str) -> Any:
    """The attribute of the first class in the method resolution order that has the name; MISSING
    for none.
    """
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def class_attribute_source(cls: type, name: str) -> Source | None:
    """The source of a class attribute; None for a class whose attributes never change."""
    if cls.__flags__ & IMMUTABLE_TYPE:
        return None
    return TypeAttributeSource(ConstantSource(cls), name)


def bind(
    machine: Machine, raw: Any, source: Source | None, instance: Value | None, cls: type
) -> Value:
    """The value of a class attribute read through `instance` or through the class (None)."""
    match raw:
        case WrittenAttribute(value=value):
            return _bind_written(machine, value, instance, cls)
        case types.FunctionType() | functools._lru_cache_wrapper():
            function = _wrap(machine, raw, source)
            return function if instance is None else MethodValue(function, instance)
        case types.MethodDescriptorType() | types.WrapperDescriptorType():
            builtin = BuiltinValue(raw)
            return builtin if instance is None else MethodValue(builtin, instance)
        case staticmethod():
            return _wrap(
                machine, raw.__func__, AttributeSource(source, "__func__") if source else None
            )
        case classmethod():
            function = _wrap(
                machine, raw.__func__, AttributeSource(source, "__func__") if source else None
            )
            return MethodValue(function, ClassValue(cls, ConstantSource(cls)))
        case types.ClassMethodDescriptorType():
            return MethodValue(BuiltinValue(raw), ClassValue(cls, ConstantSource(cls)))
    if instance is None:
        return _bind_to_class(machine, raw, source, cls)
    match raw:
        case property():
            getter = _wrap(machine, raw.fget, AttributeSource(source, "fget") if source else None)
            return machine.call(getter, [instance])
        case types.GetSetDescriptorType() | types.MemberDescriptorType():
            return _read_slot(machine, raw, instance, cls)
    getter, _ = machine.class_attribute(type(raw), "__get__")
    if getter is MISSING:
        return _wrap(machine, raw, source)
    descriptor = _wrap(machine, raw, source)
    return machine.call_special(
        descriptor, "__get__", [instance, ClassValue(cls, ConstantSource(cls))]
    )


def _bind_written(machine: Machine, value: Value, instance: Value | None, cls: type) -> Value:
    if isinstance(value, FunctionValue):
        return value if instance is None else MethodValue(value, instance)
    getter = find_class_attribute(value.python_type(), "__get__")
    if getter is MISSING:
        return value
    if value.real() is not MISSING:
        return bind(machine, value.real(), value.source, instance, cls)
    owner = ClassValue(cls, ConstantSource(cls))
    none = machine.new(None)
    return machine.call_special(value, "__get__", [none if instance is None else instance, owner])


def _bind_to_class(machine: Machine, raw: Any, source: Source | None, cls: type) -> Value:
    """Reading a class attribute that is no function, through the class."""
    getter, _ = machine.class_attribute(type(raw), "__get__")
    descriptor = _wrap(machine, raw, source)
    if isinstance(getter, types.FunctionType):
        owner = ClassValue(cls, ConstantSource(cls))
        return machine.call_special(descriptor, "__get__", [machine.new(None), owner])
    return descriptor


def _read_slot(machine: Machine, raw: Any, instance: Value, cls: type) -> Value:
    """Read a descriptor written in C."""
    name = raw.__name__
    if name == "__class__":
        return ClassValue(cls, ConstantSource(cls))
    if isinstance(instance, ObjectValue):
        if name == "__dict__":
            return InstanceDictValue.of(machine, instance)
        return instance.slot(machine, name)
    real = instance.real()
    if real is MISSING:  # The class has the descriptor, so the object may well have the attribute.
        reason = reasons.UNSUPPORTED_ATTRIBUTE
        raise machine.unsupported(reason, name=name, object=instance.describe())
    return machine.new(getattr(real, name))


def _wrap(machine: Machine, raw: Any, source: Source | None) -> Value:
    if source is not None:
        return machine.wrap(raw, source)
    value = machine.known_value(raw)
    return machine.new(raw) if value is None else value
