"""Objects of any class: attributes read through Python's own lookup order, and writes kept apart
until the graph ran.

An existing object is never changed while tracing. What the program writes to it is kept here, seen
by later reads, and
replayed by generated code; what it reads is wrapped from the object's own dictionary, with a
source and a guard.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import (
    AttributeSource,
    InstanceSource,
    ItemSource,
    Source,
    StateSource,
)
from fusewright.capture.values.base import (
    IMMUTABLE_TYPE,
    MISSING,
    Machine,
    NotConstant,
    Rebuilder,
    TracedError,
    Value,
    name_in_messages,
    overrides_object,
    raise_no_attribute,
)
from fusewright.capture.values.constant import ConstantValue
from fusewright.errors import Location, Unsupported

if TYPE_CHECKING:
    from fusewright.capture.values.mappings import DictValue

_get_attribute = object.__getattribute__
_GETTER: Final = "__getattribute__"


def is_data_descriptor(raw: Any) -> bool:
    """Whether a class attribute wins over the instance's dictionary."""
    cls = type(raw)
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def is_builtin_slot(method: Any, name: str) -> bool:
    """Whether what a class has as `name` (`__setattr__` …) is what C gave it or a base of it: not a
    method of the program's, and not another one put there, as in `__setattr__ = dict.__setitem__`.
    """
    return isinstance(method, types.WrapperDescriptorType) and method.__name__ == name


def is_declared_slot(cls: type, name: str) -> bool:
    """Whether an attribute is one of `__slots__`: without a value until it is given one."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    return "__slots__" in vars(owner)


def overrides_items(cls: type[Any], base: type[Any]) -> bool:
    """Whether a subclass of a built-in container has a `__getitem__` of its own."""
    return cls is not base and cls.__getitem__ is not base.__getitem__


def reads_by_thread(cls: type) -> bool:
    """Whether instances of a class have one `__dict__` for each thread, which only their own
    `__getattribute__` gives: `threading.local`.
    """
    return issubclass(cls, threading.local)


def _raised(function: Callable[[], object]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


def instance_dictionary(object: Any) -> dict[str, Any] | None:
    """The object's `__dict__`, read past any `__getattribute__` of the program's; None when it has
    none.
    """
    get = threading.local.__getattribute__ if reads_by_thread(type(object)) else _get_attribute
    try:
        dictionary: dict[str, Any] = get(object, "__dict__")
        return dictionary
    except AttributeError:
        return None


class _Slotted:
    __slots__ = ("name",)
    name: int


_SAYS_CLASS: Final = "_Slotted" in str(_raised(lambda: _Slotted().name))
"""Whether the message for an entry of `__slots__` without a value names the class, as from some
release of 3.11 on."""


class ObjectValue(Value):
    """An object with attributes, existing or made by the traced program. Containers and functions
    are objects too.
    """

    __slots__ = ("cls", "known", "object", "shared", "written")

    def __init__(self, cls: type, object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.object = object
        """The object, when it exists; MISSING when the traced program made it."""
        self.known: dict[str, Any] = {}
        """Attributes read or written so far; MISSING for one that was deleted."""
        self.written: dict[str, None] = {}
        """The attributes that differ from the existing object's, in the order of their first
        write.
        """
        self.shared: DictValue | None = None
        """The `__dict__` of an existing object, where the program holds that dict by another way
        too: it keeps the attributes then, for both.
        """

    def python_type(self) -> type:
        return self.cls

    def real(self) -> Any:
        return self.object

    def key(self) -> Hashable:
        if overrides_object(self.cls, "__hash__"):
            raise NotImplementedError
        return self if self.object is MISSING else self.object

    def forget(self) -> None:
        """Let go of the object."""
        self.object = MISSING

    def describe(self) -> str:
        where = f" ({self.source})" if self.source is not None else ""
        return f"an object of class {self.cls.__module__}.{self.cls.__qualname__}{where}"

    # -- attributes ------------------------------------------------------------------------------

    def field(self, machine: Machine, name: str) -> Value | None:
        """The entry `name` of the instance's dictionary, or None."""
        if self.shared is not None:
            return self.shared.lookup(machine, machine.new(name))
        attribute = self.known.get(name)
        if attribute is not None:
            return None if attribute is MISSING else attribute
        dictionary = self.own_dictionary(machine)
        if dictionary is None:
            return None
        if self.shared is not None:
            return self.field(machine, name)
        if name not in dictionary:
            if self.source is not None:
                machine.guard(GuardKind.ABSENT, self.source, name)
            return None
        value = self.known[name] = machine.wrap(
            dictionary[name], InstanceSource(self.required_source(machine), name)
        )
        return value

    def own_dictionary(self, machine: Machine) -> dict[str, Any] | None:
        """The `__dict__` of an existing object that has one. Sets `shared` where it is."""
        if self.object is MISSING:
            return None
        dictionary = instance_dictionary(self.object)
        if dictionary is not None:
            self.shared = machine.dictionaries.shared(self, dictionary)
        return dictionary

    def share(self, machine: Machine, dictionary: DictValue) -> None:
        """Let the value of its `__dict__` keep the attributes from now on, with what the program
        has written so far.
        """
        self.shared = dictionary
        for name in [name for name in self.written if not self._is_slot(machine, name)]:
            del self.written[name]
            self._store_shared(machine, dictionary, name, self.known.pop(name))

    def _is_slot(self, machine: Machine, name: str) -> bool:
        """Whether an attribute is kept beside the instance's dictionary."""
        raw, _ = machine.class_attribute(self.cls, name)
        return raw is not MISSING and is_data_descriptor(raw)

    def _store_shared(self, machine: Machine, dictionary: DictValue, name: str, value: Any) -> None:
        key = machine.new(name)
        if value is MISSING:
            dictionary.remove(machine, key)
        else:
            dictionary.put(machine, key, value)

    def field_names(self) -> list[str]:
        """The keys of the instance's dictionary, in order. The caller guards them."""
        dictionary = None if self.object is MISSING else instance_dictionary(self.object)
        names = [name for name in dictionary or () if self.known.get(name) is not MISSING]
        names += [
            name for name in self.written if self.known[name] is not MISSING and name not in names
        ]
        return names

    def required_source(self, machine: Machine) -> Source:
        """The source of an existing object."""
        if self.source is None:
            raise machine.unsupported(
                reasons.INTERNAL_ERROR, error=f"{self.describe()} that no guard reads"
            )
        return self.source

    def _is_unset(self, name: str) -> bool:
        """Whether an entry of `__slots__` is known to have no value."""
        slot = self.known.get(name)
        if slot is None:
            return self.object is MISSING and is_declared_slot(self.cls, name)
        return slot is MISSING

    def slot(self, machine: Machine, name: str) -> Value:
        """The object that a descriptor written in C reads: a `__slots__` entry, or a part of a
        built-in object.
        """
        if self.known.get(name, MISSING) is not MISSING:
            known_part: Value = self.known[name]
            return known_part
        if self._is_unset(name):
            if not _SAYS_CLASS:
                machine.raise_error(AttributeError, name)
            raise_no_attribute(machine, self.cls, name)
        if self.object is MISSING:
            raise machine.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=self.describe()
            )
        try:
            part = getattr(self.object, name)
        except AttributeError as error:
            if self.source is not None:
                machine.guard(GuardKind.ATTRIBUTE_ABSENT, self.source, name)
            machine.raise_error(AttributeError, *error.args)
        if self.source is None:
            return machine.new(part)
        value = self.known[name] = machine.wrap(part, AttributeSource(self.source, name))
        return value

    def get_attribute(self, machine: Machine, name: str) -> Value:
        getter, source = machine.class_attribute(self.cls, "__getattribute__")
        if is_builtin_slot(getter, "__getattribute__"):
            return self.attribute_or_fallback(machine, name)
        try:
            return machine.call(machine.bind(getter, source, self, self.cls), [machine.new(name)])
        except TracedError as error:
            fallback = self._fallback(machine, error)
            if fallback is None:
                raise
        return machine.call(fallback, [machine.new(name)])

    def attribute_or_fallback(self, machine: Machine, name: str) -> Value:
        """`object.__getattribute__`, then the class's `__getattr__`."""
        try:
            return self.generic_attribute(machine, name)
        except TracedError as error:
            fallback = self._fallback(machine, error)
            if fallback is None:
                raise
        return machine.call(fallback, [machine.new(name)])

    def _fallback(self, machine: Machine, error: TracedError) -> Value | None:
        """The class's `__getattr__`, bound, if it has one and `error` is an AttributeError."""
        if not error.is_caught_as(AttributeError):
            return None
        getter, source = machine.class_attribute(self.cls, "__getattr__")
        if getter is MISSING:
            return None
        return machine.bind(getter, source, self, self.cls)

    def generic_attribute(self, machine: Machine, name: str) -> Value:
        """Read an attribute as `object.__getattribute__` does: data descriptor, instance, other
        descriptor. Raises TracedError.
        """
        raw, source = machine.class_attribute(self.cls, name)
        if name == "__dict__" and reads_by_thread(self.cls):
            return self._dictionary_of_thread(machine)
        if raw is not MISSING and is_data_descriptor(raw):
            return machine.bind(raw, source, self, self.cls)
        value = self.field(machine, name)
        if value is not None:
            return value
        if raw is not MISSING:
            return machine.bind(raw, source, self, self.cls)
        self._refuse_attribute_of_c(machine, name)
        raise_no_attribute(machine, self.cls, name)

    def _dictionary_of_thread(self, machine: Machine) -> Value:
        self.own_dictionary(machine)
        if self.shared is None:
            raise self._unknown_attribute(machine, "__dict__")
        return self.shared

    def _refuse_attribute_of_c(self, machine: Machine, name: str) -> None:
        """Break where an existing object has an attribute that was not found: C code gives it."""
        if self.object is MISSING or self.shared is not None or name in self.known:
            return
        getter = next(vars(base)[_GETTER] for base in self.cls.__mro__ if _GETTER in vars(base))
        if getter is object.__getattribute__ or not is_builtin_slot(getter, _GETTER):
            return  # A method of the program's has asked `object`.
        try:
            getter(self.object, name)
        except AttributeError:
            return
        raise self._unknown_attribute(machine, name)

    def _unknown_attribute(self, machine: Machine, name: str) -> Unsupported:
        reason = reasons.UNSUPPORTED_ATTRIBUTE
        return machine.unsupported(reason, name=name, object=self.describe())

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        setter, source = machine.class_attribute(self.cls, "__setattr__")
        if is_builtin_slot(setter, "__setattr__"):
            self.generic_set(machine, name, value)
        else:
            arguments = [machine.new(name), value]
            machine.call(machine.bind(setter, source, self, self.cls), arguments)

    def generic_set(self, machine: Machine, name: str, value: Value) -> None:
        """Set an attribute as `object.__setattr__` does."""
        raw, _ = machine.class_attribute(self.cls, name)
        if self._called_accessor(machine, name, "__set__", [value]):
            return
        has_dictionary = self.cls.__dictoffset__ != 0 or reads_by_thread(self.cls)
        if is_data_descriptor(raw) or has_dictionary:
            self.store(machine, name, value)
        elif raw is MISSING:
            raise_no_attribute(machine, self.cls, name)
        else:
            cls = name_in_messages(self.cls)
            text = f"{cls!r} object attribute {name!r} is read-only"
            machine.raise_error(AttributeError, text)

    def store(self, machine: Machine, name: str, value: Any) -> None:
        """Write the instance's dictionary, or a slot; MISSING deletes."""
        if self.shared is None:
            self.own_dictionary(machine)
        if name == "__dict__":
            self._replace_dictionary(machine, value)
        elif self.shared is not None and not self._is_slot(machine, name):
            self._store_shared(machine, self.shared, name, value)
            return
        machine.record_mutation(self)
        self.known[name] = value
        self.written.setdefault(name)

    def _replace_dictionary(self, machine: Machine, dictionary: Any) -> None:
        """Let a dict keep the attributes of an object that the program made and that has none."""
        is_fresh = self.object is MISSING and not self.known
        is_dict = isinstance(dictionary, ObjectValue) and issubclass(dictionary.cls, dict)
        if not (is_fresh and is_dict):
            reason = reasons.UNSUPPORTED_ATTRIBUTE
            raise machine.unsupported(reason, name="__dict__", object=self.describe())
        self.shared = dictionary

    def delete_attribute(self, machine: Machine, name: str) -> None:
        remover, source = machine.class_attribute(self.cls, "__delattr__")
        if is_builtin_slot(remover, "__delattr__"):
            self.generic_delete(machine, name)
        else:
            machine.call(machine.bind(remover, source, self, self.cls), [machine.new(name)])

    def generic_delete(self, machine: Machine, name: str) -> None:
        """Delete an attribute as `object.__delattr__` does."""
        raw, _ = machine.class_attribute(self.cls, name)
        if self._called_accessor(machine, name, "__delete__", []):
            return
        if is_data_descriptor(raw):
            if self._is_unset(name):
                machine.raise_error(AttributeError, name)
            self.slot(machine, name)
            self.store(machine, name, MISSING)
        elif self.field(machine, name) is not None:
            self.store(machine, name, MISSING)
        else:
            raise_no_attribute(machine, self.cls, name)

    def _called_accessor(
        self, machine: Machine, name: str, slot: str, arguments: list[Value]
    ) -> bool:
        """Let a property, or a descriptor written in Python, set or delete an attribute; False
        where the class has none.
        """
        raw, source = machine.class_attribute(self.cls, name)
        if isinstance(raw, property):
            part, role = _PROPERTY_PARTS[slot]
            function = getattr(raw, part)
            if function is None:
                cls = self.cls.__qualname__
                text = f"property {name!r} of {cls!r} object has no {role}"
                machine.raise_error(AttributeError, text)
            place = AttributeSource(source, part) if source else None
            accessor = machine.wrap(function, place) if place else machine.new(function)
            machine.call(accessor, [self, *arguments])
            return True
        if raw is MISSING or not isinstance(getattr(type(raw), slot, None), types.FunctionType):
            return False
        descriptor = machine.wrap(raw, source) if source else machine.new(raw)
        machine.call_special(descriptor, slot, [self, *arguments])
        return True

    # -- generated code --------------------------------------------------------------------------

    def parts(self) -> Sequence[Value]:
        return [self.known[name] for name in self.written if self.known[name] is not MISSING]

    def rebuild(self, code: Rebuilder) -> None:
        code.call(allocate_object, self.cls)

    def changes(self) -> dict[str, Any]:
        """The attributes to write after the graph has run; MISSING for one to delete."""
        return {name: self.known[name] for name in self.written}


_PROPERTY_PARTS: Final = {"__set__": ("fset", "setter"), "__delete__": ("fdel", "deleter")}
"""The function of a property that stands for a descriptor's method, and what messages call it."""


def allocate_object(cls: type) -> Any:
    """A bare instance of a class, `__init__` not run: what generated code starts from."""
    base: Any = next(base for base in cls.__mro__ if base.__flags__ & IMMUTABLE_TYPE)
    return base.__new__(cls)


class PrimitiveValue(ObjectValue):
    """An instance, made while tracing, of a subclass of str, int, float, complex or bytes."""

    __slots__ = ("content",)

    def __init__(self, cls: type, content: Any) -> None:
        super().__init__(cls)
        self.content = content
        """The plain string or number."""

    def key(self) -> Hashable:
        base = type(self.content)
        if self.cls.__hash__ is base.__hash__ and self.cls.__eq__ is base.__eq__:
            return self.content  # type: ignore[no-any-return]
        raise NotImplementedError

    def rebuild(self, code: Rebuilder) -> None:
        code.call(type(self.content).__new__, self.cls, self.content)


class ThreadIdentityValue(Value):
    """The number of the calling thread, whichever it is, which `threading.get_ident()` gives."""

    __slots__ = ()

    def python_type(self) -> type:
        return int

    def key(self) -> Hashable:
        return "the calling thread"

    def describe(self) -> str:
        return "the id of the thread"

    def rebuild(self, code: Rebuilder) -> None:
        code.call(threading.get_ident)


class IdentityValue(Value):
    """The number that `id(object)` gives, known only to be compared and looked up."""

    __slots__ = ("target",)

    def __init__(self, target: Value) -> None:
        super().__init__(None)
        self.target = target

    def python_type(self) -> type:
        return int

    def key(self) -> Hashable:
        real = self.target.real()
        if real is MISSING or isinstance(self.target, ConstantValue):
            return ("id", id(self.target if real is MISSING else real))
        return id(real)

    def describe(self) -> str:
        return f"the id of {self.target.describe()}"

    def parts(self) -> Sequence[Value]:
        return (self.target,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(id, self.target)


def handled_by_callers(machine: Machine) -> Value:
    """The exception that the captured function's callers handle: none, or the graph breaks."""
    if sys.exception() is not None:
        raise machine.unsupported(
            reasons.OUTSIDE_WORLD,
            function="sys.exception",
            detail="what the function's callers handle is not known while it is captured",
        )
    machine.guard(GuardKind.EQUALS, StateSource("sys.exception()", sys.exception), None)
    return machine.new(None)


CHAIN: Final = ("__cause__", "__context__", "__suppress_context__")
"""The attributes that link an exception to others."""


class ExceptionValue(ObjectValue):
    """An exception object."""

    __slots__ = ("arguments", "raised_at")

    def __init__(
        self,
        cls: type,
        arguments: Sequence[Value],
        object: Any = MISSING,
        source: Source | None = None,
    ) -> None:
        super().__init__(cls, object, source)
        self.arguments = list(arguments)
        self.raised_at: Location | None = None
        """The line of the user that raised it; None before, and where that was not traced."""

    @classmethod
    def existing(cls, machine: Machine, error: BaseException, source: Source) -> ExceptionValue:
        """The value of an exception that was raised for real."""
        place = AttributeSource(source, "args")
        machine.guard(GuardKind.LENGTH, place, len(error.args))
        arguments = [
            machine.wrap(item, ItemSource(place, index)) for index, item in enumerate(error.args)
        ]
        return cls(type(error), arguments, error, source)

    def slot(self, machine: Machine, name: str) -> Value:
        if name == "args":
            return machine.new_tuple(self.arguments)
        if self.object is MISSING and name not in self.known:
            if name == "__context__" and "__traceback__" in self.known:
                return handled_by_callers(machine)
            if name in ("__cause__", "__context__", "__traceback__"):
                return machine.new(None)
            if name == "__suppress_context__":
                return machine.new(False)
            if name == "value" and issubclass(self.cls, StopIteration):
                return self.arguments[0] if self.arguments else machine.new(None)
        return super().slot(machine, name)

    def follow(self, machine: Machine) -> None:
        """Be raised by the line that is executed, while another exception may be handled."""
        self.raised_at = self.raised_at or machine.location()
        if self.object is not MISSING:
            return
        handled = machine.handled
        self.known["__traceback__"] = TracebackValue()
        if handled is not None and handled is not self:
            self.known["__context__"] = handled

    def describe(self) -> str:
        words = (argument.describe() for argument in self.arguments)
        arguments = ", ".join(each.removeprefix("the constant ") for each in words)
        return f"{self.cls.__name__}({arguments})"

    def describe_origin(self) -> str:
        """The exception, and the line that raised it."""
        return self.describe() + (f", raised at {self.raised_at}" if self.raised_at else "")

    def to_python(self) -> Any:
        if self.cls.__module__ != "builtins":
            raise NotConstant(self)
        arguments = [argument.to_python() for argument in self.arguments]  # and so guarded
        return self.cls(*arguments) if self.object is MISSING else self.object

    def changes(self) -> dict[str, Any]:
        chain = {name: self.known[name] for name in CHAIN if name in self.known}
        return (chain if self.object is MISSING else {}) | super().changes()

    def parts(self) -> Sequence[Value]:
        if self.object is not MISSING:
            return super().parts()
        return [*self.arguments, *self.changes().values()]

    def rebuild(self, code: Rebuilder) -> None:
        for argument in self.arguments:
            code.complete(argument)
        code.call(allocate_exception, self.cls, *self.arguments)


def allocate_exception(cls: type[BaseException], *arguments: Any) -> BaseException:
    """An exception with its arguments; what classes written in Python have for `__init__` is not
    run again.
    """
    error = cls.__new__(cls, *arguments)
    built_in = next(base for base in cls.__mro__ if base.__flags__ & IMMUTABLE_TYPE)
    built_in.__init__(error, *arguments)  # type: ignore[misc]
    return error


class TracebackValue(Value):
    """The traceback of an exception raised while tracing: it exists, and more is not known."""

    __slots__ = ()

    def python_type(self) -> type:
        return types.TracebackType

    def get_attribute(self, machine: Machine, name: str) -> Value:
        raise machine.unsupported(reasons.UNSUPPORTED_ATTRIBUTE, name=name, object="a traceback")
