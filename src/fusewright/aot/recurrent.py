"""Recurrent networks in traced graphs: loops over their steps.

oneDNN's LSTM layers stay library calls in inference. Their backward needs a workspace of a size
that only oneDNN knows; with gradients they are loops as well, as are GRUs and RNNs, for which torch
has no kernels on CPUs but those of the operators in a step.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fusewright import recurrent
from fusewright.aot.control_flow import record_control_flow
from fusewright.aot.tracer import RECORDED_WHOLE, Recorder
from fusewright.control_flow import ControlFlow
from fusewright.errors import UnsupportedOperator


def record_recurrent(recorder: Recorder, function: Any, arguments: Sequence[Any]) -> Any:
    """Record a call of one of `recurrent.STEPS`. Raises UnsupportedOperator."""
    with_gradients = recorder.follows_autograd
    if recurrent.is_loop(function, arguments):
        if not _has_kernel(function, arguments):
            loop = functools.partial(_recorded_loop, recorder)
            return recurrent.recurrent(function, loop, *arguments)
    elif function is torch.lstm and with_gradients:
        if isinstance(arguments[1], Tensor):
            raise UnsupportedOperator("an LSTM over a packed sequence, with gradients")
        return recurrent.recurrent(function, recurrent.unrolled, *arguments)
    return recorder.fakes.call(function, arguments, {})


def _has_kernel(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether torch may have a kernel for whole layers: a GPU's, or oneDNN's LSTM."""
    inputs, _, weights, *_ = arguments
    if inputs.device.type != "cpu":
        return True
    has_projections = weights[1].shape[1] != weights[1].shape[0] // 4
    has_type = inputs.dtype in (torch.float32, torch.bfloat16)
    return function is torch.lstm and has_type and not has_projections


def _recorded_loop(
    recorder: Recorder,
    step: recurrent.Step,
    states: recurrent.States,
    gates: Tensor,
    shared: Sequence[Any],
    reverse: bool,
) -> Any:
    """A `recurrent.Loop` that is recorded."""
    graph = fx.Graph()
    own = tuple([graph.placeholder(f"state{number}") for number in range(len(states))])
    of_step = graph.placeholder("gates")
    outside = [one for one in shared if one is not None]
    given = [
        None if one is None else graph.placeholder(f"shared{number}")
        for number, one in enumerate(shared)
    ]
    found = graph.call_function(step, (own, of_step, *given))
    items = [(found, number) for number in range(len(states))]
    new = tuple([graph.call_function(operator.getitem, item) for item in items])
    graph.output((new, new[0]))
    flow = ControlFlow("scan", [fx.GraphModule({}, graph)])
    return record_control_flow(recorder, flow, [(outside,), states, gates, 0, reverse])


RECORDED_WHOLE |= dict.fromkeys(recurrent.STEPS, record_recurrent)
