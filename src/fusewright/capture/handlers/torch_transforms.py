"""Function transforms of torch.func under capture: `vmap(f)(x)` is one call in the graph, and what
`f` does a graph of its own.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import torch

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles, handles_closures, refusal
from fusewright.capture.values.base import (
    Machine,
    NotConstant,
    Rebuilder,
    Value,
    known_arguments,
)
from fusewright.capture.values.functions import FunctionValue
from fusewright.fake_rules.arguments import by_name

TRANSFORMS: Final = (
    torch.func.vmap,
    torch.func.grad,
    torch.func.grad_and_value,
    torch.func.jacrev,
    torch.func.jacfwd,
    torch.func.hessian,
)
"""Functions that give a function for a function."""


class TransformedValue(Value):
    """A function that a transform gave."""

    __slots__ = ("function", "options", "transform")

    def __init__(
        self, transform: Callable[..., Any], function: Value, options: dict[str, Any]
    ) -> None:
        super().__init__(None)
        self.transform = transform
        self.function = function
        self.options = options

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"torch.func.{self.transform.__name__}({self.function.describe()})"

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """The attributes that `functools.wraps` gives to the function a transform returns."""
        if name == "__wrapped__":
            return self.function
        if name in functools.WRAPPER_ASSIGNMENTS:
            attribute = machine.attribute_or_none(self.function, name)
            if attribute is not None:
                return attribute
        return super().get_attribute(machine, name)

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        chain, function = self._chain()

        def use(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            for transform, options in chain:
                function = transform(function, **options)
            return function(*arguments, **keywords)

        name = self.transform.__name__
        return machine.call_with_subprograms(name, use, [function], arguments, keywords)

    def _chain(self) -> tuple[list[tuple[Callable[..., Any], dict[str, Any]]], Value]:
        """The transforms, the innermost first, and the function of the program inside."""
        inner = self.function
        if not isinstance(inner, TransformedValue):
            return [(self.transform, self.options)], inner
        chain, function = inner._chain()
        return [*chain, (self.transform, self.options)], function

    def parts(self) -> Sequence[Value]:
        return (self.function,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(functools.partial(self.transform, **self.options), self.function)


def _applied_at_once(transform: Callable[..., Any]) -> Callable[..., Value]:
    """A handler for a transform that is given a function together with its arguments."""

    def call(machine: Machine, /, func: Value, *arguments: Value, **keywords: Value) -> Value:
        name = transform.__name__
        return machine.call_with_subprograms(name, transform, [func], arguments, keywords)

    return call


handles(torch.func.jvp)(_applied_at_once(torch.func.jvp))
handles(torch.func.vjp)(_applied_at_once(torch.func.vjp))


def _refusal(name: str) -> Callable[..., NoReturn]:
    return refusal(reasons.FUNCTION_TRANSFORM, transform=f"torch.func.{name}")


def _transform(transform: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Value]:
    refuse = _refusal(transform.__name__)

    def transformed(
        machine: Machine, /, func: Value, *arguments: Value, **keywords: Value
    ) -> Value:
        options = by_name(names, arguments, keywords)
        try:
            _, constants = known_arguments(machine, [], options)
        except NotConstant:
            refuse(machine)
        return TransformedValue(transform, func, constants)

    return transformed


def _closure_of(
    transform: Callable[..., Any], handler: Callable[..., Value]
) -> Callable[..., Value]:
    """A handler for what a transform returned before: its cells hold the arguments."""
    code = transform.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def call(machine: Machine, closure: Value, /, *arguments: Value, **keywords: Value) -> Value:
        assert isinstance(closure, FunctionValue)
        cells = zip(closure.code.co_freevars, closure.cells, strict=True)
        options = {name: cell.load(machine) for name, cell in cells if name in parameters}
        transformed = handler(machine, **options)
        return machine.call(transformed, list(arguments), keywords)

    return call


for _function in TRANSFORMS:
    _code = _function.__code__
    _handler = _transform(_function, _code.co_varnames[1 : _code.co_argcount])
    handles(_function)(_handler)
    for _constant in _code.co_consts:
        if isinstance(_constant, types.CodeType) and "func" in _constant.co_freevars:
            handles_closures(_constant)(_closure_of(_function, _handler))


handles(torch.func.linearize)(_refusal("linearize"))
