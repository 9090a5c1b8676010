"""Torch's modes under capture: gradients, autocast, defaults, inference mode.

A mode is changed for real while tracing, so that fakes behave under it (capture puts it back), and
by a node of the graph, so that whoever runs or traces the graph behaves alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import handles
from fusewright.capture.sources import StateSource
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import NONE
from fusewright.capture.values.regions import IndexRegionValue, InferenceRegionValue
from fusewright.modes import SETTERS

STATE_QUERIES: Final[tuple[Callable[..., Any], ...]] = (
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.is_autocast_enabled,
    torch.is_autocast_cache_enabled,
    torch.get_autocast_dtype,
    torch.get_default_dtype,
    torch.get_default_device,
    torch.are_deterministic_algorithms_enabled,
    *torch_compat.states.STATE_QUERIES,
)
"""Functions whose answer the global-state guard covers: asked for real."""

GUARDED_QUERIES: Final[tuple[Callable[..., Any], ...]] = (
    torch.get_float32_matmul_precision,
    torch.get_num_threads,
    torch.is_anomaly_enabled,
    torch.cuda.is_current_stream_capturing,
)
"""Queries run for real, with a guard on the answer each: the state they read does not change while
tracing.
"""


def _query(function: Callable[..., Any], guarded: bool) -> Any:
    def ask(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
        constants = [argument.constant() for argument in arguments]
        named = {name: value.constant() for name, value in keywords.items()}
        answer = function(*constants, **named)
        if guarded:
            source = StateSource(function.__name__, partial(function, *constants, **named))
            machine.guard(GuardKind.EQUALS, source, answer)
        return machine.new(answer)

    return ask


for _functions, _guarded in ((STATE_QUERIES, False), (GUARDED_QUERIES, True)):
    for _function in _functions:
        handles(_function)(_query(_function, _guarded))


def _setter(function: Callable[..., Any], current: Callable[..., Any]) -> Any:
    def switch(machine: Machine, *arguments: Value) -> None:
        constants = [argument.constant() for argument in arguments]
        if current(*constants[:-1]) != constants[-1]:
            function(*constants)
            machine.add_effect(function, constants)

    return switch


for _function, _current in SETTERS.items():
    handles(_function)(_setter(_function, _current))


# -- autocast -------------------------------------------------------------------------------------


@handles(torch.autocast_increment_nesting)
def increment_nesting(machine: Machine) -> Value:
    return machine.new(torch.autocast_increment_nesting())


@handles(torch.autocast_decrement_nesting)
def decrement_nesting(machine: Machine) -> Value:
    return machine.new(torch.autocast_decrement_nesting())


@handles(torch.clear_autocast_cache)
def clear_autocast_cache(machine: Machine) -> None:
    torch.clear_autocast_cache()
    machine.add_effect(torch.clear_autocast_cache, [])


# -- default devices ------------------------------------------------------------------------------


@handles(torch.device.__enter__)
def enter_device(machine: Machine, device: Value) -> Value:
    """`with torch.device(…)`: the graph's factory calls name their device, so that it needs no
    node.
    """
    torch.device.__enter__(device.constant())
    return device


@handles(torch.device.__exit__)
def leave_device(machine: Machine, device: Value, *exception: Value) -> None:
    torch.device.__exit__(device.constant(), None, None, None)


# -- inference mode -------------------------------------------------------------------------------


_REGION = "_inference_mode_context"
"""The attribute of a `torch.inference_mode` object that keeps what it entered."""


@handles(torch.inference_mode.__enter__)
def enter_inference_mode(machine: Machine, owner: Value) -> None:
    mode = machine.attribute(owner, "mode").constant()
    entered = torch_compat.states.enter_inference_mode(mode)
    node = machine.add_effect(torch_compat.states.enter_inference_mode, [mode])
    region = InferenceRegionValue(entered, node)
    machine.regions.append(region)
    machine.set_attribute(owner, _REGION, region)


@handles(torch.inference_mode.__exit__)
def leave_inference_mode(machine: Machine, owner: Value, *exception: Value) -> None:
    region = machine.attribute(owner, _REGION)
    if not isinstance(region, InferenceRegionValue):  # entered for real, at a graph break
        raise machine.unsupported(
            reasons.UNKNOWN_CALLABLE, function="torch.inference_mode.__exit__"
        )
    machine.regions.remove(region)
    region.leave()
    machine.add_effect(torch_compat.states.leave_inference_mode, [region.node])


# -- items by tensors -----------------------------------------------------------------------------


_INDEX_REGION = "_index_region"
"""An attribute of the mode's object that keeps graph breaks out of the region."""


@handles(torch_compat.states.push_function_mode)
def enter_function_mode(machine: Machine, mode: Value) -> None:
    """Enter a mode in which torch's functions mean something else; capture knows one such mode."""
    if not torch_compat.states.is_index_mode(mode.python_type()):
        name = "torch._C._push_on_torch_function_stack"
        raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function=name)
    region = IndexRegionValue(mode)
    machine.regions.append(region)
    machine.set_attribute(mode, _INDEX_REGION, region)


@handles(torch_compat.states.pop_function_mode)
def leave_function_mode(machine: Machine) -> Value:
    region = machine.regions[-1] if machine.regions else None
    if not isinstance(region, IndexRegionValue):
        name = "torch._C._pop_torch_function_stack"
        raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function=name)
    machine.regions.pop()
    machine.set_attribute(region.mode, _INDEX_REGION, NONE)
    return region.mode
