"""Autograd under capture: functions with gradients of their own and checkpointed regions belong in
the graph; what asks the engine for gradients breaks it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.autograd_history import history
from fusewright.capture.handlers.registry import handles, refusal
from fusewright.capture.handlers.uninterpreted import guard_variables
from fusewright.capture.values.base import MISSING, Machine, Value
from fusewright.capture.values.constant import FALSE, NONE, TRUE
from fusewright.capture.values.functions import (
    FunctionValue,
    MethodValue,
    PartialValue,
    function_name,
)
from fusewright.capture.values.tensors import TensorValue
from fusewright.user_kernels import noting_launches

_METHODS = ("forward", "setup_context", "backward", "vjp")
"""The methods of an autograd function that users write."""


@handles(torch_compat.apply_autograd_function)
def apply_autograd_function(
    machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value
) -> Value:
    """`Function.apply(…)`: one call in the graph, with the user's own forward and backward.

    The forward runs on fakes now, and on tensors, or on a backend's fakes, later. It must do
    nothing but compute tensors; what it and the backward read from variables outside is guarded.
    Functions that it is given, for the forward to call, are graphs of their own.
    """
    function = cls.constant()
    if machine.classes.made(function) is not None:
        what = "the forward and backward of an autograd function"
        raise machine.unsupported(reasons.CLASS_MADE, name=function.__name__, what=what)
    for name in _METHODS:
        raw, _ = machine.class_attribute(function, name)
        if isinstance(raw, staticmethod):
            method = machine.attribute(cls, name)
            if isinstance(method, FunctionValue):
                guard_variables(machine, method)
    places = [place for place, argument in enumerate(arguments) if isinstance(argument, _FUNCTIONS)]
    if places and not keywords:
        return _apply_to_functions(machine, function, arguments, places)
    return machine.call_graph(_named_apply(function), list(arguments), keywords)


_FUNCTIONS = (FunctionValue, MethodValue, PartialValue)


def _apply_to_functions(
    machine: Machine,
    function: type[torch.autograd.Function],
    arguments: Sequence[Value],
    places: Sequence[int],
) -> Value:
    """`Function.apply(…)` of functions at some places, which the forward calls. A function that it
    keeps for the backward breaks the graph: it has not been called as the backward will call it.
    """
    functions = [arguments[place] for place in places]
    others = [argument for place, argument in enumerate(arguments) if place not in places]
    use = _Application(function, places)
    result = machine.call_with_subprograms(function.__name__, use, functions, others, {})
    use.is_traced = False
    if use.keeps_functions:
        name, what = function_name(function), "a function, which it keeps for its backward"
        raise machine.unsupported(reasons.TENSOR_TO_UNKNOWN, function=name, argument=what)
    return result


class _Application:
    """Applies an autograd function to functions, which come first, and its other arguments."""

    def __init__(self, function: type[torch.autograd.Function], places: Sequence[int]) -> None:
        self._function = function
        self._places = places
        self.is_traced = True
        """Whether the call is being captured."""
        self.keeps_functions = False
        """Whether a function was still held when the call was captured and had returned."""

    def __call__(self, *operands: Any) -> Any:
        arguments: list[Any] = list(operands[len(self._places) :])
        for place, function in zip(self._places, operands, strict=False):
            arguments.insert(place, _passed_on(function))
        passed = [weakref.ref(arguments[place]) for place in self._places]
        result = self._function.apply(*arguments)
        arguments.clear()
        if self.is_traced:
            self.keeps_functions |= any(reference() is not None for reference in passed)
        return result


def _passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own that does what `function` does."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return call


def _named_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` under the name of the class, by which fx writes and prints it. By a name of
    torch's module fx would write the class itself, which makes an object when it is called.
    """

    def apply(*arguments: Any, **keywords: Any) -> Any:
        with noting_launches():
            return function.apply(*arguments, **keywords)

    apply.__name__ = apply.__qualname__ = function.__name__
    if function.__module__.partition(".")[0] != "torch":
        apply.__module__ = function.__module__
    return apply


@handles(torch.utils.checkpoint.checkpoint)
def checkpoint(
    machine: Machine,
    /,
    function: Value,
    *arguments: Value,
    use_reentrant: Value | None = None,
    context_fn: Value | None = None,
    **keywords: Value,
) -> Value:
    """`checkpoint(function, …)`: the function itself, as a region of the graph that a backend may
    compute again in backward. Eager keeps the arguments for that, and its backward raises where one
    was written to since.
    """
    reentrant = use_reentrant is None or machine.truth(use_reentrant)
    if reentrant or context_fn is not None:
        what = "checkpoint(use_reentrant=True)" if reentrant else "checkpoint(context_fn=…)"
        raise machine.unsupported(reasons.GRAD_REQUIRED, operation=what)
    passed = {name: kw for name, kw in keywords.items() if name not in _CHECKPOINT_OPTIONS}
    fakes = [argument.fake for argument in arguments if isinstance(argument, TensorValue)]
    versions = [fake._version for fake in fakes]
    result = machine.call_checkpointed(function, list(arguments), passed)
    if torch.is_grad_enabled() and versions != [fake._version for fake in fakes]:
        what = "checkpoint of a function that writes to its argument"
        raise machine.unsupported(reasons.GRAD_REQUIRED, operation=what)
    return result


_CHECKPOINT_OPTIONS = ("preserve_rng_state", "determinism_check", "debug", "early_stop")


for _function, _name in (
    (torch.autograd.backward, "torch.autograd.backward"),
    (torch_compat.BackwardHook, "a backward hook"),
):
    handles(_function)(refusal(reasons.GRAD_REQUIRED, operation=_name))
handles(torch.nn.Parameter)(refusal(reasons.PARAMETER_MADE))


@handles(torch.autograd.grad)
def gradients(
    machine: Machine,
    outputs: Value,
    inputs: Value,
    grad_outputs: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    only_inputs: Value = TRUE,
    allow_unused: Value = NONE,
    is_grads_batched: Value = FALSE,
    materialize_grads: Value = FALSE,
) -> Value:
    """`torch.autograd.grad(…)`: one call in the graph, in which torch's engine runs.

    A backend that traces the graph runs the engine on fakes. It breaks the graph where the history
    goes on outside, in that of an input, and where inputs have hooks. What the engine read is kept,
    as whoever traces the graph may differentiate it once more.
    """
    if machine.truth(is_grads_batched) or _leads_outside(machine, outputs):
        raise machine.unsupported(reasons.GRAD_REQUIRED, operation="torch.autograd.grad")
    keywords = {
        "grad_outputs": grad_outputs,
        "retain_graph": TRUE,
        "create_graph": create_graph,
        "allow_unused": allow_unused,
        "materialize_grads": materialize_grads,
    }
    options = {name: value for name, value in keywords.items() if value is not NONE}
    with torch.autograd.set_multithreading_enabled(False):  # Modes belong to a thread.
        return machine.call_graph(torch.autograd.grad, [outputs, inputs], options)


def _leads_outside(machine: Machine, outputs: Value) -> bool:
    """Whether the engine, run on the real tensors, would do more than it does on fakes."""
    values = [outputs] if isinstance(outputs, TensorValue) else machine.items(outputs)
    passed = history([value.fake for value in values if isinstance(value, TensorValue)])
    return any(
        get_gradient_edge(tensor.fake).node in passed
        for tensor in machine.inputs
        if tensor.object.grad_fn is not None or tensor.object._backward_hooks
    )


@handles(torch.Tensor.requires_grad_)
def require_gradients(machine: Machine, tensor: TensorValue, requires_grad: Value = TRUE) -> Value:
    """`tensor.requires_grad_(…)`: nothing where it is so already. A tensor of the graph may become
    a leaf, one from outside is made one for real.
    """
    requires = bool(requires_grad.constant())
    if tensor.fake.requires_grad == requires:
        return tensor
    builder = machine.builder
    if not (requires and tensor.object is MISSING and builder.permissions.leaves):
        raise machine.unsupported(reasons.GRAD_REQUIRED, operation="tensor.requires_grad_()")
    builder.leaves.append(tensor.fake)
    return machine.call_graph("requires_grad_", [tensor], {})
