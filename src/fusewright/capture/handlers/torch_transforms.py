"""Function transforms of torch.func under capture: `vmap(f)(x)` is one call in the graph.

    def program(x, w):
        return vmap(lambda row: row @ w)(x)
 ->
    vmap = call_function(apply, ((w,), x))        # apply: vmap of f, its cell filled with w

The function given is made anew from its code by whoever runs the graph. The tensors that it finds
in its cells are inputs of the call; everything else that it reads is known and guarded. It must do
nothing but compute tensors.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles
from fusewright.capture.handlers.uninterpreted import guard_variables
from fusewright.capture.values.base import Interpreter, NotConstant, Rebuilder, Value
from fusewright.capture.values.classes import ClassValue, PythonModuleValue
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import BuiltinValue, FunctionValue, make_function
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import Unsupported

TRANSFORMS: Final = (
    torch.func.vmap,
    torch.func.grad,
    torch.func.grad_and_value,
    torch.func.jacrev,
    torch.func.jacfwd,
    torch.func.hessian,
)
"""Functions that give a function for a function."""

Maker = Callable[[Sequence[torch.Tensor]], Any]
"""Makes a function, or what stands in one of its cells, given the captured tensors."""


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

    def call(
        self, interpreter: Interpreter, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        name = self.transform.__name__
        return _call_in_graph(interpreter, name, self, _call, arguments, keywords)

    def parts(self) -> Sequence[Value]:
        return (self.function,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(functools.partial(self.transform, **self.options), [self.function])


def _call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    return function(*arguments, **keywords)


def _call_in_graph(
    interpreter: Interpreter,
    name: str,
    function: Value,
    use: Callable[..., Any],
    arguments: Sequence[Value],
    keywords: dict[str, Value],
) -> Value:
    """Put `use(function, *arguments, **keywords)` in the graph as one call."""
    captured: list[TensorValue] = []
    make = _portable(interpreter, function, captured)

    def apply(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        return use(make(tensors), *args, **kwargs)

    apply.__name__ = apply.__qualname__ = name
    inputs = interpreter.new_tuple(captured)
    return interpreter.call_graph(apply, [inputs, *arguments], keywords)


@handles(torch.func.jvp)
def jvp(interpreter: Interpreter, func: Value, *arguments: Value, **keywords: Value) -> Value:
    return _call_in_graph(interpreter, "jvp", func, torch.func.jvp, arguments, keywords)


def _transform(transform: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Value]:
    def given(interpreter: Interpreter, func: Value, *arguments: Value, **keywords: Value) -> Value:
        options = {**dict(zip(names, arguments, strict=False)), **keywords}
        interpreter.read_all(options.values())
        try:
            known = {name: value.to_python() for name, value in options.items()}
        except NotConstant:
            raise _refusal(interpreter, transform.__name__) from None
        return TransformedValue(transform, func, known)

    return given


for _function in TRANSFORMS:
    _code = _function.__code__
    handles(_function)(_transform(_function, _code.co_varnames[1 : _code.co_argcount]))


def _refuse(name: str) -> Callable[..., Value]:
    def refuse(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> Value:
        raise _refusal(interpreter, name)

    return refuse


def _refusal(interpreter: Interpreter, name: str) -> Unsupported:
    return interpreter.unsupported(reasons.FUNCTION_TRANSFORM, transform=f"torch.func.{name}")


for _name in ("vjp", "linearize"):
    handles(getattr(torch.func, _name))(_refuse(_name))


# -- functions that a graph can hold --------------------------------------------------------------


def _portable(interpreter: Interpreter, value: Value, captured: list[TensorValue]) -> Maker:
    """How to make the object of a value from tensors, which are added to `captured`. Raises
    Unsupported for an object that a graph cannot hold.
    """
    match value:
        case TensorValue():
            if value not in captured:
                captured.append(value)
            position = captured.index(value)
            return lambda tensors: tensors[position]
        case TransformedValue(transform=transform, options=options):
            inner = _portable(interpreter, value.function, captured)
            return lambda tensors: transform(inner(tensors), **options)
        case FunctionValue():
            return _portable_function(interpreter, value, captured)
        case BuiltinValue() | ClassValue() | PythonModuleValue():
            known = value.real()
            return lambda tensors: known
        case ConstantValue():
            constant = value.constant()
            return lambda tensors: constant
    raise _cannot_hold(interpreter, value.describe())


def _cannot_hold(interpreter: Interpreter, what: str) -> Unsupported:
    """The graph break for a function that reads an object which a graph cannot hold."""
    return interpreter.unsupported(reasons.TENSOR_TO_UNKNOWN, function="torch.func", argument=what)


def _portable_function(
    interpreter: Interpreter, function: FunctionValue, captured: list[TensorValue]
) -> Maker:
    for other in guard_variables(interpreter, function, with_cells=False):
        raise _cannot_hold(interpreter, other.describe())
    contents = [cell.load(interpreter) for cell in function.cells]
    if None in contents:
        raise _cannot_hold(interpreter, "an empty cell")
    cells = [_portable(interpreter, value, captured) for value in contents if value is not None]
    defaults = [_portable(interpreter, value, captured) for value in function.defaults]
    keyword_defaults = {
        name: _portable(interpreter, value, captured)
        for name, value in function.keyword_defaults.items()
    }
    code, variables = function.code, function.namespace.dictionary
    return lambda tensors: make_function(
        code,
        variables,
        tuple([make(tensors) for make in defaults]),
        {name: make(tensors) for name, make in keyword_defaults.items()},
        tuple([types.CellType(make(tensors)) for make in cells]),
    )
