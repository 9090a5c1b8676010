"""Classes made while tracing: the `class` statement, `type(name, bases, namespace)`, decorators of
classes, and subclasses' `property`, `classmethod` and `staticmethod`.

The body runs in the interpreter. The class itself is then made for real, so that Python says what
its order of bases, slots and descriptors are; a function in it that was made while tracing is
represented by a real one that never runs, and that the interpreter knows as its own. No guard names
such a class, and a program that lets one escape breaks the graph.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import enum
import functools
import types
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, PURE, handles
from fusewright.capture.interpreter.stand_ins import raise_real
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import Interpreter, NotConstant, Value
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.functions import CellValue, FunctionValue

METACLASSES: Final = (type, abc.ABCMeta, enum.EnumMeta)
"""Metaclasses that run no code of the user's when they make a class."""

PURE.update({enum.auto, dataclasses.field})


@handles(builtins.__build_class__)
def build_class(
    interpreter: Interpreter, body: Value, name: Value, *bases: Value, **keywords: Value
) -> Value:
    assert isinstance(body, FunctionValue)
    namespace: dict[str, Value] = {}
    interpreter.execute(body, namespace)
    cell = namespace.pop("__classcell__", None)
    made = _make_class(interpreter, name, bases, namespace, keywords)
    if isinstance(cell, CellValue):
        cell.store(interpreter, made)
    return made


@handles(type.__new__)
def new_class(
    interpreter: Interpreter, metaclass: Value, *parts: Value, **keywords: Value
) -> Value:
    if len(parts) != 3 or metaclass.constant() is not type:
        raise interpreter.unsupported(reasons.UNKNOWN_CALLABLE, function="a metaclass")
    name, bases, namespace = parts
    entries = {k.constant(): v for k, v in interpreter.mapping_entries(namespace)}
    return _make_class(interpreter, name, interpreter.items(bases), entries, keywords)


def _make_class(
    interpreter: Interpreter,
    name: Value,
    bases: Any,
    namespace: dict[str, Value],
    keywords: dict[str, Value],
) -> Value:
    try:
        real_bases = tuple(base.constant() for base in bases)
        named = {key: value.constant() for key, value in keywords.items()}
        content = {key: interpreter.real_object(value) for key, value in namespace.items()}
    except NotConstant as error:
        what = error.args[0].describe()
        raise interpreter.unsupported(reasons.CLASS_MADE, name=name.constant(), what=what) from None
    metaclass = named.get("metaclass", type)
    for base in real_bases:
        hook = getattr(base, "__init_subclass__", None)
        if (
            isinstance(getattr(hook, "__func__", None), types.FunctionType)
            and type(base) is not enum.EnumMeta
        ):
            raise interpreter.unsupported(
                reasons.CLASS_MADE, name=name.constant(), what="`__init_subclass__` of a base"
            )
    if not all(type(base) in METACLASSES for base in real_bases) or metaclass not in METACLASSES:
        raise interpreter.unsupported(
            reasons.CLASS_MADE, name=name.constant(), what="a metaclass written in Python"
        )
    try:
        made = types.new_class(
            name.constant(), real_bases, named, functools.partial(_fill, content)
        )
    except Exception as error:
        raise_real(interpreter, error)
    interpreter.note_made(made)
    return ClassValue(made, ConstantSource(made))


def _fill(content: dict[str, Any], space: dict[str, Any]) -> None:
    for name, item in content.items():  # one by one: the namespace of an enum looks at each
        space[name] = item


# -- descriptors ----------------------------------------------------------------------------------


def _descriptor(cls: type) -> Any:
    def make(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> Any:
        try:
            known = [interpreter.real_object(argument) for argument in arguments]
            named = {name: interpreter.real_object(item) for name, item in keywords.items()}
        except NotConstant:
            return DECLINED
        made = cls(*known, **named)
        interpreter.note_made(made)
        return interpreter.wrap(made, ConstantSource(made))

    return make


for _class in (property, classmethod, staticmethod, functools.cached_property):
    handles(_class)(_descriptor(_class))


def _property_change(name: str) -> Any:
    def change(interpreter: Interpreter, old: Value, function: Value) -> Value:
        made = getattr(old.real(), name)(interpreter.real_object(function))
        interpreter.note_made(made)
        return interpreter.wrap(made, ConstantSource(made))

    return change


for _name in ("getter", "setter", "deleter"):
    handles(getattr(property, _name))(_property_change(_name))


# -- decorators of classes ------------------------------------------------------------------------


@handles(dataclasses.dataclass)
def make_dataclass(interpreter: Interpreter, cls: Value | None = None, **options: Value) -> Any:
    if not isinstance(cls, ClassValue) or not interpreter.is_made(cls.cls):
        return DECLINED
    known = {name: option.constant() for name, option in options.items()}
    try:
        made: type = dataclasses.dataclass(**known)(cls.cls)
    except Exception as error:
        raise_real(interpreter, error)
    interpreter.note_made(made)
    return ClassValue(made, ConstantSource(made))
