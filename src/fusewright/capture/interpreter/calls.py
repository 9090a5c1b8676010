"""Calls of any object: by its row in the table of callables (`handlers.registry`), as an inlined
function, as a new instance, or as a call in the graph.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.directives import disabled_error, torch_original, why_disabled
from fusewright.capture.finalizers import has_finalizer
from fusewright.capture.graph import is_graph_function, is_tensor_method
from fusewright.capture.handlers.registry import DECLINED, Meaning, meaning_of
from fusewright.capture.interpreter import stand_ins, tensor_calls
from fusewright.capture.interpreter.arguments import bind_arguments
from fusewright.capture.interpreter.attributes import bind
from fusewright.capture.interpreter.handler_calls import call_handler, takes
from fusewright.capture.sources import ConstantSource, ModuleSource, Source
from fusewright.capture.values.base import (
    MISSING,
    Machine,
    NotConstant,
    Value,
    evaluate,
    known_arguments,
)
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import NONE
from fusewright.capture.values.functions import FunctionValue, Namespace, function_name
from fusewright.capture.values.numbers import FUNCTIONS, has_symbols, number_of
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import FusewrightError, Unsupported

CACHING: Final = type(functools.lru_cache(lambda: None))
"""The class of what `functools.lru_cache` makes."""


def call_object(
    machine: Machine,
    function: Any,
    source: Source | None,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Call what is known by identity: a class, or a function of Python, C or torch."""
    if isinstance(function, types.FunctionType):
        return inline(machine, _function(machine, function), arguments, keywords)
    result = _call_by_table(machine, meaning_of(function), function, arguments, keywords)
    if result is not None:
        return result
    if isinstance(function, type):
        return instantiate(machine, function, arguments, keywords)
    if is_graph_function(function):
        return machine.call_graph(function, arguments, keywords)
    if arguments and isinstance(arguments[0], TensorValue) and is_tensor_method(function):
        return machine.call_tensor_method(arguments[0], function.__name__, arguments[1:], keywords)
    if isinstance(function, CACHING):
        return _call_caching(machine, function, arguments, keywords)
    raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function=function_name(function))


def _call_by_table(
    machine: Machine,
    meaning: Meaning,
    function: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """The result of a call by a callable's row, whose ways are tried in this order. None where it
    has none, or none that takes these arguments.
    """
    if meaning.handler is not None:
        result = call_handler(machine, meaning.handler, function, arguments, keywords)
        if result is not DECLINED:
            return result  # type: ignore[no-any-return]
    if meaning.is_pure:
        folded = _fold(machine, function, arguments, keywords)
        if folded is not None:
            return folded
    if meaning.polyfill is not None:
        if not takes(meaning.polyfill, arguments, keywords):
            stand_ins.raise_as(machine, function, *arguments, **keywords)
        return machine.call_object(meaning.polyfill, None, arguments, keywords)
    is_in_c = not isinstance(function, types.FunctionType)
    if meaning.is_pure and is_in_c and not is_graph_function(function):
        return stand_ins.run_for_real(machine, function, arguments, keywords)
    return None


def _call_caching(
    machine: Machine, function: Any, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """A call of what `functools.lru_cache` made: for real where the arguments are known, as the
    cache is the program's own; else the function itself, whose result is the same.
    """
    try:
        constants, named = known_arguments(machine, arguments, keywords)
    except NotConstant:
        return machine.call(machine.new(function.__wrapped__), arguments, keywords)
    result = evaluate(machine, function, *constants, **named)
    return machine.wrap(result, ConstantSource(result))


def _function(machine: Machine, function: Callable[..., Any]) -> FunctionValue:
    """The value of a function of ours, or of one known by identity."""
    value = machine.wrap(function, ConstantSource(function))
    assert isinstance(value, FunctionValue)
    return value


def _fold(
    machine: Machine, function: Any, arguments: list[Value], keywords: dict[str, Value]
) -> Value | None:
    """Run a pure function for real; None when an argument is not wholly known."""
    machine.read_all(arguments)
    try:
        if function in FUNCTIONS and not keywords and has_symbols(arguments):
            function = FUNCTIONS[function]
            constants = [number_of(argument) for argument in arguments]
        else:
            constants = [argument.to_python() for argument in arguments]
        named = {name: argument.to_python() for name, argument in keywords.items()}
    except NotConstant:
        return None
    try:
        result = function(*constants, **named)
    except FusewrightError:
        raise
    except Exception as error:
        stand_ins.raise_real(machine, error)
    return stand_ins.value_of(machine, result)


def inline(
    machine: Machine, function: FunctionValue, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """Interpret a call of a Python function, unless its meaning is known."""
    if function.object is not MISSING:
        if why_disabled(function.object) is not None:
            raise disabled_error(machine, function.object)
        if torch_compat.is_module_bookkeeping(function.object):
            return NONE
        meaning = meaning_of(function.object)
        operands = [function, *arguments] if meaning.takes_closure else arguments
        result = _call_by_table(machine, meaning, function.object, operands, keywords)
        if result is not None:
            return result
        original = torch_original(machine, function.object, function.source)
        if original is not None:
            return machine.call(original, arguments, keywords)
        result = _called_in_graph(machine, function, arguments, keywords)
        if result is not None:
            return result
    variables = bind_arguments(machine, function, arguments, keywords)
    return machine.execute(function, variables)


def _called_in_graph(
    machine: Machine, function: FunctionValue, arguments: list[Value], keywords: dict[str, Value]
) -> Value | None:
    """A call of a function of torch's, written in Python, as one in the graph; None where it has
    to be interpreted.
    """
    if is_graph_function(function.object):
        try:
            return tensor_calls.call_graph(machine, function.object, arguments, keywords)
        except NotConstant:
            pass
        except Unsupported as refusal:  # It may look at values only to check them.
            if refusal.reason != reasons.FAKE_EXECUTION.name:
                raise
    if arguments and isinstance(arguments[0], TensorValue):
        name = function.code.co_name
        if is_tensor_method(function.object) and hasattr(torch.Tensor, name):
            return machine.call_tensor_method(arguments[0], name, arguments[1:], keywords)
    return None


def instantiate(
    machine: Machine, cls: type, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """A new instance, as `type.__call__` makes it: `__new__`, then `__init__`."""
    metaclass_call, source = machine.class_attribute(type(cls), "__call__")
    if isinstance(metaclass_call, types.FunctionType | type):  # of a TypedDict it is dict
        bound = bind(
            machine, metaclass_call, source, ClassValue(cls, ConstantSource(cls)), type(cls)
        )
        return machine.call(bound, arguments, keywords)
    return machine.construct(cls, arguments, keywords)


def construct(
    machine: Machine, cls: type, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """A new instance, past a metaclass's own `__call__`."""
    new, source = machine.class_attribute(cls, "__new__")
    new_function = bind(machine, new, source, None, cls)
    instance = machine.call(
        new_function, [ClassValue(cls, ConstantSource(cls)), *arguments], keywords
    )
    if has_finalizer(instance.python_type()) and instance.source is None:
        machine.note_finalizer(instance)
    if issubclass(instance.python_type(), cls):
        init, source = machine.class_attribute(instance.python_type(), "__init__")
        if init is not object.__init__:
            machine.call(bind(machine, init, source, instance, cls), arguments, keywords)
    return instance


def import_module(
    machine: Machine, namespace: Namespace, name: str, names: tuple[str, ...] | None, level: int
) -> Value:
    """`import name` or `from name import names` of a module; imported for real if it was not
    yet.
    """
    if level:
        package = namespace.dictionary.get("__package__") or namespace.dictionary["__name__"]
        name = importlib.util.resolve_name("." * level + name, package)
    try:
        module = importlib.import_module(name)
        for part in names or ():
            if part != "*" and not hasattr(module, part) and hasattr(module, "__path__"):
                importlib.import_module(f"{name}.{part}")
    except ImportError as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and names
            and str(error.name or "").startswith(name + ".")
        ):
            pass
        else:
            stand_ins.raise_real(machine, error)
    if not names and "." in name and not level:
        module = sys.modules[name.partition(".")[0]]
    return machine.wrap(module, ModuleSource(module.__name__))
