"""Recurrent networks in traced graphs: loops over their steps; oneDNN's LSTM layers stay library
calls, and plain networks where no gradients are wanted.
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
from fusewright.own_operators import operator_like
from fusewright.torch_compat.graph_modules import GraphModule


def record_recurrent(recorder: Recorder, function: Any, arguments: Sequence[Any]) -> Any:
    """Record a call of one of `recurrent.STEPS`."""
    if not recurrent.is_padded(function, arguments) or arguments[0].device.type != "cpu":
        return recorder.fakes.call(function, arguments, {})
    if _has_nothing_to_fuse(function, arguments):
        like = getattr(torch.ops.aten, function.__name__).input
        return operator_like(function.__name__, like, _NETWORKS[function])(*arguments)
    loop: recurrent.Loop = recurrent.unrolled
    if recurrent.is_loop(function, arguments):
        loop = functools.partial(_recorded_loop, recorder)
    run_layer = recurrent.by(function, loop)
    if function is torch.lstm and lstm_layers.computes(*arguments):
        run_layer = lstm_layers.run_layer
    return recurrent.recurrent(function, run_layer, *arguments)


def _has_nothing_to_fuse(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether torch's own loop serves as well: its steps are a product and one pointwise operator,
    and it calls both without Python. Not where gradients or random numbers are wanted of it.
    """
    if function not in _NETWORKS or not recurrent.is_loop(function, arguments):
        return False
    inputs, hidden, weights, _, _, dropout, training, *_ = arguments
    wants_gradients = any(tensor.requires_grad for tensor in (inputs, hidden, *weights))
    return not (dropout and training) and not (wants_gradients and torch.is_grad_enabled())


def _network(
    function: Any,
    inputs: Tensor,
    hidden: Tensor,
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Outputs and last states of `function`; of meta tensors, their geometry."""
    if inputs.device.type != "meta":
        options = (has_biases, layers, dropout, training, bidirectional, batch_first)
        results: tuple[Tensor, Tensor] = function(inputs, hidden, weights, *options)
        return results
    length, batch = inputs.shape[:2][:: -1 if batch_first else 1]
    outputs = inputs.new_empty(length, batch, hidden.shape[2] * (2 if bidirectional else 1))
    return outputs.transpose(0, 1) if batch_first else outputs, hidden.new_empty(hidden.shape)


_NETWORKS = {
    function: functools.partial(_network, function) for function in (torch.rnn_tanh, torch.rnn_relu)
}
"""Networks without gates."""


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
    outside = [tensor for tensor in shared if tensor is not None]
    arguments = [
        None if tensor is None else graph.placeholder(f"shared{number}")
        for number, tensor in enumerate(shared)
    ]
    results = graph.call_function(step, (own, of_step, *arguments))
    items = [(results, number) for number in range(len(states))]
    new = tuple([graph.call_function(operator.getitem, item) for item in items])
    graph.output((new, new[0]))
    flow = ControlFlow("scan", [GraphModule({}, graph)])
    return record_control_flow(recorder, flow, [(outside,), states, gates, 0, reverse])


RECORDED_WHOLE |= dict.fromkeys(recurrent.STEPS, record_recurrent)
