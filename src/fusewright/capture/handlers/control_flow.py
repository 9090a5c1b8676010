"""Conditions and loops over tensors under capture: one call in the graph, each function a graph of
its own.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright import control_flow, torch_compat
from fusewright.capture.handlers.registry import handles
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import FALSE, ConstantValue
from fusewright.capture.values.tensors import TensorValue


@handles(torch.cond)
def cond(
    machine: Machine,
    pred: Value,
    true_fn: Value,
    false_fn: Value,
    operands: Value | None = None,
) -> Value:
    """`torch.cond`: a predicate that is known chooses while tracing, as it does in eager."""
    arguments = machine.new_tuple([] if operands is None else machine.items(operands))
    if not isinstance(pred, TensorValue):
        chosen = true_fn if machine.truth(pred) else false_fn
        return machine.call(chosen, machine.items(arguments))
    return machine.call_with_subprograms(
        "cond", control_flow.cond, [true_fn, false_fn], [pred, arguments], {}
    )


@handles(torch_compat.while_loop)
def while_loop(machine: Machine, cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    carried = machine.new_tuple(machine.items(carried_inputs))
    return machine.call_with_subprograms(
        "while_loop", control_flow.while_loop, [cond_fn, body_fn], [carried], {}
    )


@handles(torch_compat.scan)
def scan(
    machine: Machine,
    combine_fn: Value,
    init: Value,
    xs: Value,
    *,
    dim: Value | None = None,
    reverse: Value = FALSE,
) -> Any:
    arguments = [init, xs, dim or ConstantValue(0), reverse]
    return machine.call_with_subprograms("scan", control_flow.scan, [combine_fn], arguments, {})
