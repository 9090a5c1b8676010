"""Conditions and loops over tensors under capture: one call in the graph, each function a graph of
its own.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright import control_flow, torch_compat
from fusewright.capture.handlers.registry import handles
from fusewright.capture.values.base import Interpreter, Value
from fusewright.capture.values.constant import FALSE, ConstantValue
from fusewright.capture.values.tensors import TensorValue


@handles(torch.cond)
def cond(
    interpreter: Interpreter,
    pred: Value,
    true_fn: Value,
    false_fn: Value,
    operands: Value | None = None,
) -> Value:
    """`torch.cond`: a predicate that is known chooses while tracing, as it does in eager."""
    arguments = interpreter.new_tuple([] if operands is None else interpreter.items(operands))
    if not isinstance(pred, TensorValue):
        chosen = true_fn if interpreter.truth(pred) else false_fn
        return interpreter.call(chosen, interpreter.items(arguments))
    return interpreter.call_with_subprograms(
        "cond", control_flow.cond, [true_fn, false_fn], [pred, arguments], {}
    )


@handles(torch_compat.while_loop)
def while_loop(
    interpreter: Interpreter, cond_fn: Value, body_fn: Value, carried_inputs: Value
) -> Value:
    carried = interpreter.new_tuple(interpreter.items(carried_inputs))
    return interpreter.call_with_subprograms(
        "while_loop", control_flow.while_loop, [cond_fn, body_fn], [carried], {}
    )


@handles(torch_compat.scan)
def scan(
    interpreter: Interpreter,
    combine_fn: Value,
    init: Value,
    xs: Value,
    *,
    dim: Value | None = None,
    reverse: Value = FALSE,
) -> Any:
    arguments = [init, xs, dim or ConstantValue(0), reverse]
    return interpreter.call_with_subprograms("scan", control_flow.scan, [combine_fn], arguments, {})
