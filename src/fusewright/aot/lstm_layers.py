"""oneDNN's LSTM layers: library calls, which keep a workspace where gradients are wanted.

    aten::mkldnn_rnn_layer               ->   lstm_layer
    aten::mkldnn_rnn_layer_backward      ->   lstm_layerBackward

Torch's operator makes the workspace only while gradients are on, which they are not in compiled
code, and only oneDNN knows its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.aot.eager_calls import EagerCall
from fusewright.aot.subprograms import empty
from fusewright.aot.tracer import RECORDED_WHOLE, Recorder
from fusewright.opaque import Opaque
from fusewright.recurrent import Layer, States

aten = torch.ops.aten

_LSTM = 2
"""Among oneDNN's kinds of recurrent networks."""


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


# -- recording, where there are gradients ----------------------------------------------------------


def _record_layer(recorder: Recorder, op: Any, arguments: Any) -> tuple[Any, ...]:
    *results, workspace = recorder.fakes.dispatch(op, arguments, {})
    kept = Opaque()
    call = EagerCall(_layer, "lstm_layer", may_raise=True)
    recorder.record_call(call, arguments, {}, (*results, kept))
    recorder.bind(workspace, recorder.argument(kept))
    return *results, workspace


def _record_layer_backward(recorder: Recorder, op: Any, arguments: Any) -> Any:
    likes = arguments[:7]  # the inputs, the weights and biases, and the first states
    gradients = tuple([empty(recorder, like.shape, like.dtype, like.device) for like in likes])
    call = EagerCall(_layer_backward, "lstm_layerBackward")
    recorder.record_call(call, arguments, {}, gradients)
    return gradients


def _layer(*arguments: Any) -> tuple[Any, ...]:
    """The results of a layer, and its workspace, which torch makes only while gradients are on."""
    inputs = [
        argument.detach() if isinstance(argument, Tensor) else argument for argument in arguments
    ]
    with torch.enable_grad():
        *results, workspace = aten.mkldnn_rnn_layer.default(*inputs)
    return *results, (workspace,)


def _layer_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """The gradients of a layer. Torch gives one for both biases."""
    *inputs, (workspace,) = arguments
    gradients = aten.mkldnn_rnn_layer_backward.default(*inputs, workspace)
    of_inputs, of_weight, of_hidden_weight, of_bias, _, *of_states = gradients
    return of_inputs, of_weight, of_hidden_weight, of_bias, of_bias.clone(), *of_states


RECORDED_WHOLE[aten.mkldnn_rnn_layer.default] = _record_layer
RECORDED_WHOLE[aten.mkldnn_rnn_layer_backward.default] = _record_layer_backward
