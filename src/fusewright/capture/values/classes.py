"""Classes, `super()` objects and imported modules."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.sources import AttributeSource, ConstantSource, Source
from fusewright.capture.values.base import (
    IMMUTABLE_TYPE,
    MISSING,
    Machine,
    Rebuilder,
    Value,
    evaluate,
)
from fusewright.capture.values.functions import Namespace
from fusewright.capture.values.objects import is_builtin_slot, is_data_descriptor


class ClassValue(Value):
    """A class."""

    __slots__ = ("cls",)

    def __init__(self, cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        return type(self.cls)

    def real(self) -> Any:
        return self.cls

    def constant(self) -> Any:
        return self.cls

    def key(self) -> Hashable:
        return self.cls

    def describe(self) -> str:
        return f"the class {self.cls.__module__}.{self.cls.__qualname__}"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return machine.call_object(self.cls, self.source, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        metaclass = type(self.cls)
        raw, source = machine.class_attribute(metaclass, name)
        if raw is not MISSING and is_data_descriptor(raw):
            if isinstance(raw, types.GetSetDescriptorType | types.MemberDescriptorType):
                return self._slot(machine, name)
            return machine.bind(raw, source, self, metaclass)

        attribute, attribute_source = machine.class_attribute(self.cls, name)
        if attribute is not MISSING:
            return machine.bind(attribute, attribute_source, None, self.cls)
        if raw is not MISSING:
            return machine.bind(raw, source, self, metaclass)

        getter, getter_source = machine.class_attribute(metaclass, "__getattr__")
        if getter is not MISSING:
            bound = machine.bind(getter, getter_source, self, metaclass)
            return machine.call(bound, [machine.new(name)])
        machine.raise_error(
            AttributeError, f"type object {self.cls.__name__!r} has no attribute {name!r}"
        )

    def _slot(self, machine: Machine, name: str) -> Value:
        part = evaluate(machine, type.__getattribute__, self.cls, name)
        if name == "__dict__" and self.source is not None:
            return machine.wrap(part, AttributeSource(self.source, name))
        if self.cls.__flags__ & IMMUTABLE_TYPE:
            return machine.new(part)
        source = AttributeSource(ConstantSource(self.cls), name)
        return machine.wrap(part, source)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        metaclass = type(self.cls)
        setter, source = machine.class_attribute(metaclass, "__setattr__")
        if is_builtin_slot(setter, "__setattr__"):
            self.generic_set(machine, name, value)
        else:
            bound = machine.bind(setter, source, self, metaclass)
            machine.call(bound, [machine.new(name), value])

    def generic_set(self, machine: Machine, name: str, value: Any) -> None:
        """Set an attribute as `type.__setattr__` does; for MISSING, delete it."""
        if self.cls.__flags__ & IMMUTABLE_TYPE:
            text = f"cannot set {name!r} attribute of immutable type {self.cls.__name__!r}"
            machine.raise_error(TypeError, text)
        raw, _ = machine.class_attribute(type(self.cls), name)
        if is_data_descriptor(raw):
            raise machine.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe()
            )
        machine.classes.write(self.cls, name, value)

    def delete_attribute(self, machine: Machine, name: str) -> None:
        attribute, _ = machine.class_attribute(self.cls, name)
        if attribute is MISSING:
            machine.raise_error(
                AttributeError, f"type object {self.cls.__name__!r} has no attribute {name!r}"
            )
        self.generic_set(machine, name, MISSING)

    def rebuild(self, code: Rebuilder) -> None:
        code.constant(self.cls)


class ClassNamespace:
    """The attributes of an existing class that the traced program changed."""

    __slots__ = ("cls", "known")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.known: dict[str, Any] = {}
        """The new values; MISSING for an attribute that was deleted."""

    def changes(self) -> dict[str, Any]:
        """The attributes to write after the graph has run."""
        return {
            name: value
            for name, value in self.known.items()
            if value is not MISSING or name in self.cls.__dict__
        }


Parts = Value | tuple[Value, ...] | dict[str, Value]
"""An object, a tuple of objects, or a dict."""


class MadeValue(Value):
    """The recipe of a class, or of a descriptor in one, that the traced program makes: the object
    that stands for it while tracing never leaves, and generated code makes another in each call.
    """

    __slots__ = ("arguments", "attributes", "cls", "function", "steps")

    def __init__(self, cls: type, function: Callable[..., Any], arguments: Sequence[Parts]) -> None:
        super().__init__(None)
        self.cls = cls
        self.function = function
        self.arguments = arguments
        self.steps: list[Callable[[Any], Any]] = []
        """Calls made with it at once, such as of a decorator that changes a class."""
        self.attributes: dict[str, Any] = {}
        """The attributes that the program set afterwards; MISSING for one that it deleted."""

    def python_type(self) -> type:
        return self.cls

    def parts(self) -> Sequence[Value]:
        attributes = tuple(item for item in self.attributes.values() if item is not MISSING)
        return [value for item in (*self.arguments, attributes) for value in _each_of(item)]

    def rebuild(self, code: Rebuilder) -> None:
        for item in self.arguments:
            for value in _each_of(item):
                code.complete(value)
        if self.steps:
            code.call(make_and_change, tuple(self.steps), self.function, *self.arguments)
        else:
            code.call(self.function, *self.arguments)


def _each_of(parts: Parts) -> Sequence[Value]:
    match parts:
        case Value():
            return (parts,)
        case dict():
            return list(parts.values())
        case _:
            return parts


def make_and_change(
    steps: Sequence[Callable[[Any], Any]], function: Callable[..., Any], *arguments: Any
) -> Any:
    """An object after steps that change it, in generated code."""
    product = function(*arguments)
    for step in steps:
        step(product)
    return product


_OF_SUPER_ITSELF: Final = frozenset({"__self__", "__self_class__", "__thisclass__"})
"""Attributes of a `super` object, where the classes that it looks in have none of the name."""


class SuperValue(Value):
    """`super(cls, instance)`: attributes looked up after `cls` in the instance's method resolution
    order.
    """

    __slots__ = ("after", "instance")

    def __init__(self, after: type, instance: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.after = after
        self.instance = instance

    def python_type(self) -> type:
        return super

    def get_attribute(self, machine: Machine, name: str) -> Value:
        match self.instance:
            case ClassValue(cls=start) if issubclass(start, self.after):
                bound_to: Value | None = None
            case _:
                start = self.instance.python_type()
                bound_to = self.instance
        raw, source = machine.classes.attribute_after(start, self.after, name)
        if name == "__class__" or (raw is MISSING and name in _OF_SUPER_ITSELF):
            own = {"__self__": self.instance, "__self_class__": start, "__thisclass__": self.after}
            part = own.get(name, super)
            return part if isinstance(part, Value) else machine.wrap(part, ConstantSource(part))
        if raw is MISSING:
            machine.raise_error(AttributeError, f"'super' object has no attribute {name!r}")
        return machine.bind(raw, source, bound_to, start)

    def parts(self) -> Sequence[Value]:
        return (self.instance,)


class PythonModuleValue(Value):
    """An imported module. Its variables are what its functions see as globals."""

    __slots__ = ("module", "namespace")

    def __init__(
        self, module: types.ModuleType, namespace: Namespace, source: Source | None
    ) -> None:
        super().__init__(source)
        self.module = module
        self.namespace = namespace

    def python_type(self) -> type:
        return type(self.module)

    def real(self) -> Any:
        return self.module

    def to_python(self) -> Any:
        return self.module

    def describe(self) -> str:
        return f"the module {self.module.__name__}"

    def get_attribute(self, machine: Machine, name: str) -> Value:
        if name in self.namespace.known:
            if self.namespace.known[name] is MISSING:
                machine.raise_error(AttributeError, name)
            variable: Value = self.namespace.known[name]
            return variable
        if name in self.module.__dict__:
            attribute = self.module.__dict__[name]
            value = machine.wrap(attribute, self.namespace.source(name))
            self.namespace.known[name] = value
            return value
        attribute = evaluate(machine, getattr, self.module, name)
        origin = self.source
        return (
            machine.wrap(attribute, AttributeSource(origin, name))
            if origin
            else machine.new(attribute)
        )

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        self.namespace.store(machine, name, value)

    def delete_attribute(self, machine: Machine, name: str) -> None:
        self.namespace.store(machine, name, MISSING)

    def rebuild(self, code: Rebuilder) -> None:
        code.constant(self.module)
