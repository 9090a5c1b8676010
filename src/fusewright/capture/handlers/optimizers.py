"""Steps of torch.optim under capture: the counters of steps are tensors, and stay in the graph.

Eager reads a counter into a Python number and computes with that, in double precision. Captured
code must hold for every step, so here `item()` gives the number as a tensor without dimensions, in
double precision likewise; operators then meet such tensors where eager passes them numbers.

    step_size = lr / (1 - beta1 ** step.item())            (eager)
 ->
    step_size = lr / (1 - beta1 ** step.double())          (captured)
    param.addcdiv_(average, denominator, value=-step_size)
 -> param.add_(average * -step_size / denominator)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fusewright.capture.handlers import containers
from fusewright.capture.handlers.registry import DECLINED, handles, meaning_of, polyfill
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import FALSE, NONE, TRUE, ConstantValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.torch_compat import optimizers


@polyfill(optimizers.optimizer_number)
def number(value: Any) -> Any:
    """A counter's value as a number: a tensor of shape () in double precision."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type != "mps":
        return value.double()
    return value


@polyfill(optimizers.optimizer_stack)
def numbers(values: Any) -> Any:
    """A list of numbers, which torch would stack into one tensor when it compiles."""
    return values


# -- tensors where operators take numbers ---------------------------------------------------------


def add(tensor: Any, other: Any, alpha: Any) -> Any:
    return tensor.add(other * alpha)


def add_(tensor: Any, other: Any, alpha: Any) -> Any:
    return tensor.add_(other * alpha)


def addcmul_(tensor: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return tensor.add_(tensor1 * value * tensor2)


def addcdiv_(tensor: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return tensor.add_(tensor1 * value / tensor2)


def foreach_addcmul_(tensors: Any, tensors1: Any, tensors2: Any, values: Any) -> None:
    for tensor, first, second, value in zip(
        tensors, tensors1, tensors2, one_each(tensors, values), strict=True
    ):
        tensor.add_(first * value * second)


def foreach_addcdiv_(tensors: Any, tensors1: Any, tensors2: Any, values: Any) -> None:
    for tensor, first, second, value in zip(
        tensors, tensors1, tensors2, one_each(tensors, values), strict=True
    ):
        tensor.add_(first * value / second)


def one_each(tensors: Any, values: Any) -> Any:
    """Factors, one for each tensor."""
    return values if isinstance(values, list) or values.dim() else [values] * len(tensors)


def _scaled(replacement: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A handler that calls `replacement` where the factor, the last argument, given by position or
    by a name in `names`, is a tensor or a list with one.
    """
    count = replacement.__code__.co_argcount

    def call(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        operands = [*arguments, *[value for key, value in keywords.items() if key in names]]
        if len(operands) != count or len(arguments) + len(keywords) != count:
            return DECLINED
        factor = operands[-1]
        if not isinstance(factor, TensorValue) and not _holds_tensors(machine, factor):
            return DECLINED
        return machine.call_object(replacement, None, operands, {})

    return call


def _holds_tensors(machine: Machine, value: Value) -> bool:
    if value.python_type() is not list:
        return False
    return any(isinstance(item, TensorValue) for item in machine.items(value))


handles(torch.Tensor.add)(_scaled(add, "alpha"))
handles(torch.Tensor.add_)(_scaled(add_, "alpha"))
handles(torch.Tensor.addcmul_)(_scaled(addcmul_, "value"))
handles(torch.Tensor.addcdiv_)(_scaled(addcdiv_, "value"))
handles(optimizers.foreach_addcmul_)(_scaled(foreach_addcmul_, "value", "scalars"))
handles(optimizers.foreach_addcdiv_)(_scaled(foreach_addcdiv_, "value", "scalars"))


# -- optimizers in one operator -------------------------------------------------------------------


def _on_lists(step: Callable[..., None]) -> Callable[..., Any]:
    """Take apart an operator on all parameters into operators on lists, which are few kernels too
    when compiled.
    """

    def call(
        machine: Machine, /, *arguments: Value, fused: Value = FALSE, **keywords: Value
    ) -> Any:
        scaled = [keywords.get(name, NONE) for name in ("grad_scale", "found_inf")]
        if not machine.truth(fused) or any(
            not isinstance(factor, ConstantValue) or factor.value is not None for factor in scaled
        ):
            return DECLINED
        keywords |= {"fused": FALSE, "foreach": TRUE}
        return machine.call_object(step, None, [*arguments], keywords)

    return call


for _fused in optimizers.FUSED_OPTIMIZERS:
    handles(_fused)(_on_lists(_fused))


# -- optimizers that branch on a counter ----------------------------------------------------------


def _branching_in_graph(step: Callable[..., None]) -> Callable[..., Any]:
    """RAdam and ASGD do one thing or another by the number of steps; their forms for CUDA graphs
    choose with operators. Those are taken, with counters in double precision, as Python has them.
    """

    def call(machine: Machine, /, *arguments: Value, capturable: Value, **keywords: Value) -> Any:
        if machine.truth(capturable):
            return DECLINED
        *others, steps = arguments
        counters = machine.items(steps)
        precise = [machine.call_graph("double", [counter], {}) for counter in counters]
        arguments = (*others, machine.new_list(precise))
        machine.call_object(step, None, [*arguments], {"capturable": TRUE, **keywords})
        for counter, value in zip(counters, precise, strict=True):
            machine.call_graph("copy_", [counter, value], {})
        return None

    return call


for _step in optimizers.BRANCHING_OPTIMIZERS:
    handles(_step)(_branching_in_graph(_step))


# -- optimizers that read norms -------------------------------------------------------------------


def _keeping_numbers(step: Callable[..., None]) -> Callable[..., Any]:
    """Adafactor scales each step by norms, which eager reads into numbers, and by the larger of two
    of those: throughout its step `item()` gives a tensor of shape () in double precision.
    """

    def call(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        if machine.keeps_numbers:
            return DECLINED
        machine.keeps_numbers = True
        try:
            return machine.call_object(step, None, [*arguments], keywords)
        finally:
            machine.keeps_numbers = False

    return call


for _reading in optimizers.READING_OPTIMIZERS:
    handles(_reading)(_keeping_numbers(_reading))


@handles(torch.Tensor.item)
def item(machine: Machine, tensor: Value) -> Any:
    if not (machine.keeps_numbers and isinstance(tensor, TensorValue)):
        return DECLINED
    if tensor.fake.dim() or not tensor.fake.is_floating_point() or tensor.fake.device.type == "mps":
        return DECLINED
    return machine.call_graph("double", [tensor], {})


def larger(number: Any, other: Any) -> Any:
    """`max(number, other)`."""
    return torch.where(other > number, other, number)


def smaller(number: Any, other: Any) -> Any:
    """`min(number, other)`."""
    return torch.where(other < number, other, number)


def _choosing(function: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Have the larger or smaller of two numbers chosen in the graph, where one is kept there."""
    usual = meaning_of(function).handler
    assert usual is not None

    def call(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        is_kept = machine.keeps_numbers and any(
            isinstance(argument, TensorValue) for argument in arguments
        )
        if is_kept and len(arguments) == 2 and not keywords:
            return machine.call_object(replacement, None, [*arguments], {})
        return usual(machine, *arguments, **keywords)

    handles(function)(call)


assert containers, "it handles both in general"
_choosing(max, larger)
_choosing(min, smaller)


def lerp_(tensor: Any, end: Any, weight: Any) -> Any:
    """Interpolate by a number, as eager does: in single precision at least."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.copy_(tensor.float().lerp(end.float(), weight.float()))
    return tensor.lerp_(end, weight.to(tensor.dtype))


def foreach_lerp_(tensors: Any, ends: Any, weights: Any) -> None:
    for tensor, end, weight in zip(tensors, ends, weights, strict=True):
        lerp_(tensor, end, weight)


def _kept(replacement: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that calls `replacement` where the last argument is a number that is kept in the
    graph, or a list with one.
    """

    def call(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        if not machine.keeps_numbers or keywords or not arguments:
            return DECLINED
        tensor, *_, factor = arguments
        if isinstance(factor, TensorValue):
            if isinstance(tensor, TensorValue) and factor.fake.dtype is tensor.fake.dtype:
                return DECLINED
        elif not _holds_tensors(machine, factor):
            return DECLINED
        return machine.call_object(replacement, None, [*arguments], {})

    return call


handles(torch.Tensor.lerp_)(_kept(lerp_))
handles(optimizers.foreach_lerp_)(_kept(foreach_lerp_))
