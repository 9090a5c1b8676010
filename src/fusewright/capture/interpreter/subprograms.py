"""Functions of the program that stand in its graph as graphs of their own: what a transform of
torch.func is given, the two sides of a condition, the body of a loop.

    def program(x, w):
        return vmap(lambda row: row @ w)(x)
 ->
    vmap = call_function(apply, ((w,), x))     # apply: vmap of a graph (row, w) -> row @ w

The transform is run on fakes. When it calls the function, that is traced in a graph of its own, on
whatever the transform gives it: tensors without their batch dimension, say. Tensors from outside
become further inputs of that graph, and of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.capture import reasons
from fusewright.capture.graph import FAKE_FAILURES, SubgraphBuilder, look_for_symbols
from fusewright.capture.interpreter import tensor_calls
from fusewright.capture.values.base import Machine, NotConstant, TracedError, Value
from fusewright.capture.values.tensors import TensorValue, UnknownValue
from fusewright.control_flow import FUNCTIONS, ControlFlow, called
from fusewright.errors import FusewrightError

Use = Callable[..., Any]
"""Takes callables for the functions, then the arguments of the call."""


def call_with_subprograms(
    machine: Machine,
    name: str,
    use: Use,
    functions: Sequence[Value],
    arguments: Sequence[Value],
    keywords: dict[str, Value],
) -> Value:
    """Put `use(*functions, *arguments, **keywords)` in the graph as one call, the functions being
    graphs of their own.
    """
    machine.read_all([*arguments, *keywords.values()])
    traced = [_Tracing(machine, function) for function in functions]
    try:
        result = _run(machine, name, use, traced, arguments, keywords)
        node = machine.builder.add_call(
            _applied(name, use, [subprogram.required_module() for subprogram in traced]),
            [
                tuple([tuple(subprogram.lifted) for subprogram in traced]),
                *[tensor_calls.node_argument(machine, subprogram) for subprogram in arguments],
            ],
            {key: tensor_calls.node_argument(machine, value) for key, value in keywords.items()},
            result,
            machine.describe_node,
        )
    except NotConstant as error:
        raise tensor_calls.cannot_hold(machine, name, error) from None
    return tensor_calls.result_value(machine, node, result)


def _run(
    machine: Machine,
    name: str,
    use: Use,
    traced: Sequence[_Tracing],
    arguments: Sequence[Value],
    keywords: dict[str, Value],
) -> Any:
    """The call on fakes, which traces the functions."""
    fakes = [tensor_calls.fake_argument(machine, argument) for argument in arguments]
    named = {key: tensor_calls.fake_argument(machine, value) for key, value in keywords.items()}
    try:
        with machine.builder.running_on_fakes():
            return use(*[subprogram.call for subprogram in traced], *fakes, **named)
    except FAKE_FAILURES as error:
        raise tensor_calls.cannot_run(machine, name, error) from error
    except (NotConstant, TracedError, FusewrightError):
        raise
    except Exception as error:
        look_for_symbols(machine.builder.facts, [*fakes, *named.values()], error)
        why = f"it raises {type(error).__name__}, and the program looks at its text"
        text = UnknownValue(str, lambda: tensor_calls.cannot_run(machine, name, why))
        machine.raise_error(type(error), text)


class _Tracing:
    """Traces a function whenever the transform calls it: once, or for each chunk of what it is
    given.
    """

    def __init__(self, machine: Machine, function: Value) -> None:
        self.machine = machine
        self.function = function
        self.module: fx.GraphModule | None = None
        self.lifted: list[fx.Node] = []
        """Nodes of the graph around, which the function reads."""

    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """Interpret the function; the transform calls this in its place, on fakes of its
        own kind.
        """
        machine, outer = self.machine, self.machine.builder
        builder = machine.builder = SubgraphBuilder(outer)
        try:
            values = [self._value(builder, argument) for argument in arguments]
            named = {name: self._value(builder, argument) for name, argument in keywords.items()}
            result = machine.call(self.function, values, named)
            machine.read_all([result])
            returned = tensor_calls.fake_argument(machine, result)
            builder.graph.output(tensor_calls.node_argument(machine, result))
        finally:
            machine.builder = outer
        if builder.may_write_outside():
            raise machine.unsupported(reasons.WRITES_OUTSIDE, function=self.function.describe())
        lifted = list(builder.lifted)
        if self.module is None:
            self.module, self.lifted = builder.module(), lifted
        elif lifted != self.lifted or str(builder.graph) != str(self.module.graph):
            raise machine.unsupported(reasons.SUBPROGRAM_VARIES, function=self.function.describe())
        return returned

    def required_module(self) -> fx.GraphModule:
        """The function's graph. Raises Unsupported if it was never called."""
        if self.module is None:
            raise self.machine.unsupported(
                reasons.NOT_KNOWN, object="a function that was not called"
            )
        return self.module

    def _value(self, builder: SubgraphBuilder, fake: Any) -> Value:
        """The value of an argument: tensors are inputs of the function's graph."""
        match fake:
            case torch.Tensor():
                return TensorValue(torch.Tensor, builder.add_argument(fake), fake)
            case tuple() | list():
                items = [self._value(builder, item) for item in fake]
                is_list = isinstance(fake, list)
                return (
                    self.machine.new_list(items)
                    if is_list
                    else self.machine.new_tuple(items, type(fake))
                )
            case dict():
                values = {key: self._value(builder, item) for key, item in fake.items()}
                return self.machine.new_dict(values)
            case _:
                return self.machine.new(fake)


# -- when the graph runs --------------------------------------------------------------------------


def _applied(name: str, use: Use, modules: Sequence[fx.GraphModule]) -> Callable[..., Any]:
    """The target of the call in the graph; its first argument are the tensors that each function
    reads from outside.
    """
    if use is FUNCTIONS.get(name):
        return ControlFlow(name, modules)

    def apply(outside: Sequence[Sequence[Any]], *arguments: Any, **keywords: Any) -> Any:
        functions = [
            called(module, tensors) for module, tensors in zip(modules, outside, strict=True)
        ]
        return use(*functions, *arguments, **keywords)

    apply.__name__ = apply.__qualname__ = name
    return apply
