"""Classes made while tracing: the `class` statement, `type(name, bases, namespace)`, decorators of
classes, and subclasses' `property`, `classmethod` and `staticmethod`.

The body runs in the machine. The class itself is then made for real, so that Python says what
its order of bases, slots and descriptors are; a function in it that was made while tracing is
represented by a real one that never runs, and that the machine knows as its own. No guard names
such a class. Where one leaves the function, itself or through an instance, generated code makes
another in each call, from the same parts by the same steps (`MadeValue`).
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from torch.autograd.function import FunctionMeta

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, pure
from fusewright.capture.interpreter.stand_ins import raise_real
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import Machine, NotConstant, Value
from fusewright.capture.values.classes import ClassValue, MadeValue
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import CellValue, FunctionValue, PartialValue

_BASES_OF_TYPING: Final[tuple[Any, ...]] = (typing.NamedTuple, typing.Protocol, typing.TypedDict)

METACLASSES: Final = (
    type,
    abc.ABCMeta,
    enum.EnumMeta,
    FunctionMeta,
    *(type(types.resolve_bases((base,))[0]) for base in _BASES_OF_TYPING),
)
"""Metaclasses that run no code of the user's when they make a class."""

pure(enum.auto)


@handles(builtins.__build_class__)
def build_class(
    machine: Machine, body: Value, name: Value, /, *bases: Value, **keywords: Value
) -> Value:
    assert isinstance(body, FunctionValue)
    namespace: dict[str, Value] = {}
    machine.execute(body, namespace)
    cell = namespace.pop("__classcell__", None)
    cls = _make_class(machine, name, bases, namespace, keywords)
    if isinstance(cell, CellValue):
        cell.store(machine, cls)
    return cls


@handles(type.__new__)
def new_class(machine: Machine, metaclass: Value, /, *parts: Value, **keywords: Value) -> Value:
    kind = metaclass.constant()
    if len(parts) != 3 or not _runs_no_code(kind):
        raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function="a metaclass")
    name, bases, namespace = parts
    if kind is not type:
        keywords["metaclass"] = metaclass
    entries = {k.constant(): v for k, v in machine.mapping_entries(namespace)}
    return _make_class(machine, name, machine.items(bases), entries, keywords)


@handles(type.__init__)
def init_class(machine: Machine, cls: Value, /, *parts: Value, **keywords: Value) -> None:
    """Nothing: a class is complete when it is made."""


def _make_class(
    machine: Machine,
    name: Value,
    bases: Any,
    namespace: dict[str, Value],
    keywords: dict[str, Value],
) -> Value:
    try:
        real_bases = tuple(machine.classes.real_object(base) for base in bases)
        named = {key: value.constant() for key, value in keywords.items()}
        content = {key: machine.classes.real_object(value) for key, value in namespace.items()}
    except NotConstant as error:
        what = error.args[0].describe()
        raise machine.unsupported(reasons.CLASS_MADE, name=name.constant(), what=what) from None
    refused = _runs_code_of_the_program(real_bases, named, content)
    if refused is not None:
        raise machine.unsupported(reasons.CLASS_MADE, name=name.constant(), what=refused)
    try:
        cls = make_class(name.constant(), real_bases, named, content)
    except Exception as error:
        raise_real(machine, error)
    parts = (name, tuple(bases), keywords, namespace)
    recipe = MadeValue(type(cls), make_class, parts)
    machine.note_made(cls, recipe)
    if isinstance(cls, enum.EnumMeta):
        members: dict[str, enum.Enum] = dict(cls.__members__)
        for key, member in members.items():
            member_recipe = MadeValue(cls, enum.EnumMeta.__getitem__, (recipe, ConstantValue(key)))
            machine.note_made(member, member_recipe)
    return ClassValue(cls, ConstantSource(cls))


def _runs_code_of_the_program(
    bases: tuple[Any, ...], keywords: dict[str, Any], content: dict[str, Any]
) -> str | None:
    """The program's own code that would run for real if its class was made now; None for none."""
    resolved = types.resolve_bases(bases)
    metaclasses = [keywords.get("metaclass", type), *map(type, resolved)]
    if not all(map(_runs_no_code, metaclasses)):
        return "a metaclass written in Python"
    for base in resolved:
        hook = getattr(getattr(base, "__init_subclass__", None), "__func__", None)
        if isinstance(hook, types.FunctionType) and hook.__module__ not in _LIBRARIES:
            return "`__init_subclass__` of a base"
    for item in content.values():
        hook = getattr(type(item), "__set_name__", None)
        if isinstance(hook, types.FunctionType) and hook.__module__ not in _LIBRARIES:
            return "`__set_name__` of a descriptor"
    return None


def _runs_no_code(metaclass: Any) -> bool:
    """Whether a metaclass makes classes as one of `METACLASSES` does: what it has itself is asked
    of them later, such as `__instancecheck__`.
    """
    return isinstance(metaclass, type) and all(
        base in METACLASSES or base is object or _MAKING.isdisjoint(vars(base))
        for base in metaclass.__mro__
    )


_MAKING: Final = frozenset({"__new__", "__init__", "__prepare__", "mro", "__setattr__"})
"""The methods of a metaclass that run when a class is made, or given its parts."""

_LIBRARIES: Final = frozenset({"dataclasses", "enum", "functools", "typing"})
"""Modules whose hooks only look at the class."""


def make_class(
    name: str, bases: tuple[Any, ...], keywords: dict[str, Any], content: dict[str, Any]
) -> type:
    """The class of a `class` statement whose body left `content`."""

    def fill(space: dict[str, Any]) -> None:
        for key, item in content.items():  # one by one: the namespace of an enum looks at each
            space[key] = item

    return types.new_class(name, bases, keywords, fill)


def call_with_names(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """`function(*arguments, **named)`, in generated code."""
    return function(*arguments, **named)


# -- what classes hold ----------------------------------------------------------------------------


def _part_of_class(function: Callable[..., Any]) -> Any:
    """A handler that makes a descriptor or a field for real, of functions that never run."""

    def make(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        try:
            operands = [machine.classes.real_object(argument) for argument in arguments]
            named = {name: machine.classes.real_object(item) for name, item in keywords.items()}
        except NotConstant:
            return DECLINED
        result = function(*operands, **named)
        parts = (ConstantValue(function), arguments, keywords)
        recipe = MadeValue(type(result), call_with_names, parts)
        machine.note_made(result, recipe)
        return machine.wrap(result, ConstantSource(result))

    return make


for _made_by in (
    property,
    classmethod,
    staticmethod,
    functools.cached_property,
    dataclasses.field,
):
    handles(_made_by)(_part_of_class(_made_by))


def _property_change(name: str) -> Any:
    def change(machine: Machine, old: Value, function: Value) -> Value:
        descriptor = getattr(old.real(), name)(machine.classes.real_object(function))
        recipe = MadeValue(property, getattr(property, name), (old, function))
        machine.note_made(descriptor, recipe)
        return machine.wrap(descriptor, ConstantSource(descriptor))

    return change


for _name in ("getter", "setter", "deleter"):
    handles(getattr(property, _name))(_property_change(_name))


# -- decorators of classes ------------------------------------------------------------------------


@handles(dataclasses.dataclass)
def make_dataclass(machine: Machine, /, cls: Value | None = None, **options: Value) -> Any:
    if cls is None:
        function = machine.wrap(dataclasses.dataclass, ConstantSource(dataclasses.dataclass))
        return PartialValue(function, (), machine.new_dict(options))
    before = machine.classes.made(cls.cls) if isinstance(cls, ClassValue) else None
    if not isinstance(cls, ClassValue) or not isinstance(before, MadeValue):
        return DECLINED
    constants = {name: option.constant() for name, option in options.items()}
    decorate = dataclasses.dataclass(**constants)
    try:
        decorated: type = decorate(cls.cls)
    except Exception as error:
        raise_real(machine, error)
    if decorated is cls.cls:
        before.steps.append(decorate)
    else:  # with slots
        machine.note_made(decorated, MadeValue(type(decorated), decorate, (before,)))
    return ClassValue(decorated, ConstantSource(decorated))
