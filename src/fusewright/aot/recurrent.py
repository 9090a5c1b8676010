"""Recurrent networks in traced graphs: loops over their steps; oneDNN's LSTM layers stay library
calls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fusewright import recurrent
from fusewright.aot import lstm_layers
from fusewright.aot.control_flow import record_control_flow
from fusewright.aot.tracer import RECORDED_WHOLE, Recorder
from fusewright.control_flow import ControlFlow


def record_recurrent(recorder: Recorder, function: Any, arguments: Sequence[Any]) -> Any:
    """Record a call of one of `recurrent.STEPS`."""
    if not recurrent.is_padded(function, arguments) or arguments[0].device.type != "cpu":
        return recorder.fakes.call(function, arguments, {})
    loop: recurrent.Loop = recurrent.unrolled
    if recurrent.is_loop(function, arguments):
        loop = functools.partial(_recorded_loop, recorder)
    run_layer = recurrent.by(function, loop)
    if function is torch.lstm and lstm_layers.computes(*arguments):
        run_layer = lstm_layers.run_layer
    return recurrent.recurrent(function, run_layer, *arguments)


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
