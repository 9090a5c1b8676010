"""oneDNN's LSTM layers where gradients are wanted: library calls that keep a workspace.

    aten::mkldnn_rnn_layer               ->   fusewright::lstm_layer
    aten::mkldnn_rnn_layer_backward      ->   fusewright::lstm_layer_backward

Torch's operator makes the workspace only while gradients are on, which they are not in compiled
code, and only oneDNN knows its size. These hand it on as a tensor of no elements that holds the
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.formulas import When, formula
from fusewright.own_operators import operator_like
from fusewright.recurrent import Layer, States
from fusewright.runtime.held_memory import held, released

aten = torch.ops.aten

_LSTM = 2
"""Among oneDNN's kinds of recurrent networks."""


def _layer(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].device.type == "meta":
        return tuple(aten.mkldnn_rnn_layer.default(*arguments))
    given = [one.detach() if isinstance(one, Tensor) else one for one in arguments]
    with torch.enable_grad():
        *results, workspace = aten.mkldnn_rnn_layer.default(*given)
    return *results, held(workspace)


def _layer_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *given, workspace = arguments
    if workspace.device.type != "meta":
        workspace = released(workspace)
    return tuple(aten.mkldnn_rnn_layer_backward.default(*given, workspace))


def computes(inputs: Tensor, states: Any, weights: Sequence[Tensor], *options: Any) -> bool:
    """Whether oneDNN has a kernel for the layers of `torch.lstm`: none where there are projections,
    and only for some types.
    """
    lower = torch.is_autocast_enabled(inputs.device.type)
    dtype = torch.get_autocast_dtype(inputs.device.type) if lower else inputs.dtype
    has_projections = weights[1].shape[1] != weights[1].shape[0] // 4
    return torch_compat.has_onednn_kernels(dtype) and not has_projections


def run_layer(
    layer: Layer, inputs: Tensor, states: States, batch_first: bool
) -> tuple[States, Tensor]:
    """A `recurrent.RunLayer`: one call for the layer."""
    inputs = inputs.transpose(0, 1) if batch_first else inputs
    hidden, cell = states
    gates, size = layer.of_hidden.shape
    biases = (layer.input_bias, layer.hidden_bias)
    output, *last, _ = aten.mkldnn_rnn_layer.default(
        inputs.contiguous(),
        layer.of_input,
        layer.of_hidden,
        *[inputs.new_zeros(gates) if bias is None else bias for bias in biases],
        hidden.contiguous(),
        cell.contiguous(),
        layer.reverse,
        [],
        _LSTM,
        size,
        1,
        layer.input_bias is not None,
        False,
        False,
        layer.training,
    )
    return tuple(last), output


@formula(aten.mkldnn_rnn_layer.default, when=When.BACKWARD)
def layer(*arguments: Any) -> Any:
    """What is recorded in place of `aten.mkldnn_rnn_layer`."""
    return operator_like("lstm_layer", aten.mkldnn_rnn_layer.default, _layer)(*arguments)


@formula(aten.mkldnn_rnn_layer_backward.default, when=When.BACKWARD)
def layer_backward(*arguments: Any) -> Any:
    """What is recorded in place of `aten.mkldnn_rnn_layer_backward`."""
    like = aten.mkldnn_rnn_layer_backward.default
    return operator_like("lstm_layer_backward", like, _layer_backward)(*arguments)
