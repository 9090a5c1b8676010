"""Recurrent networks as loops over their steps: what `torch.lstm`, `torch.gru` and `torch.rnn_tanh`
compute, given what runs a loop.

    torch.gru(x, h, (w, r), ...)   ->   scan(gru_step, h, linear(x, w), shared=(r,))

The equations are those of the documentation of `torch.nn.LSTM`, `GRU` and `RNN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fusewright import torch_compat
from fusewright.control_flow import scan as scan_on_fakes
from fusewright.records import record

States = tuple[Tensor, ...]
"""Hidden state, and with an LSTM the cell's: of shape (batch, features) each."""

Step = Callable[..., States]
"""Takes the states, the gates as far as they come from the input, of shape (batch, gates * size),
the weight and bias by which they come from the hidden state, and an LSTM's projection; gives the
new states.
"""

Loop = Callable[[Step, States, Tensor, Sequence[Tensor | None], bool], tuple[States, Tensor]]
"""Takes the step, first states, the gates of all steps, of shape (length, batch, gates * size),
what else the step takes, and whether it runs from the end; gives the last states and all hidden
states.
"""


@record
class Layer:
    """One layer in one direction."""

    of_input: Tensor
    of_hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None
    projection: Tensor | None
    reverse: bool
    training: bool


RunLayer = Callable[[Layer, Tensor, States, bool], tuple[States, Tensor]]
"""Takes a layer, its inputs, of shape (length, batch, features), its first states, and whether the
inputs have batch and length the other way round; gives the last states and all hidden states.
"""


def lstm_step(
    states: States, gates: Tensor, weight: Tensor, bias: Tensor | None, projection: Tensor | None
) -> States:
    """One step of an LSTM."""
    hidden, cell = states
    gates = gates + functional.linear(hidden, weight, bias)
    enter, forget, candidate, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
    hidden = leave.sigmoid() * cell.tanh()
    if projection is not None:
        hidden = functional.linear(hidden, projection)
    return hidden, cell


def gru_step(states: States, gates: Tensor, weight: Tensor, bias: Tensor | None, _: Any) -> States:
    """One step of a GRU."""
    (hidden,) = states
    reset, update, candidate = gates.chunk(3, 1)
    of_hidden = functional.linear(hidden, weight, bias).chunk(3, 1)
    update = (update + of_hidden[1]).sigmoid()
    candidate = (candidate + (reset + of_hidden[0]).sigmoid() * of_hidden[2]).tanh()
    return (candidate + update * (hidden - candidate),)


def tanh_step(states: States, gates: Tensor, weight: Tensor, bias: Tensor | None, _: Any) -> States:
    """One step of an RNN with tanh."""
    return ((gates + functional.linear(states[0], weight, bias)).tanh(),)


def relu_step(states: States, gates: Tensor, weight: Tensor, bias: Tensor | None, _: Any) -> States:
    """One step of an RNN with ReLU."""
    return ((gates + functional.linear(states[0], weight, bias)).relu(),)


STEPS: dict[Any, Step] = {
    torch.lstm: lstm_step,
    torch.gru: gru_step,
    torch.rnn_tanh: tanh_step,
    torch.rnn_relu: relu_step,
}
"""By function of torch."""


def is_padded(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a call of one of `STEPS` is one of a padded batch, not of a packed sequence."""
    if len(arguments) != 9 or isinstance(arguments[2], Tensor):
        return False
    return not (function is torch.lstm and isinstance(arguments[1], Tensor))


def is_loop(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a call is one of a padded batch, and every step takes what the one before gives:
    autocast lets hidden states change their type.
    """
    if not is_padded(function, arguments):
        return False
    inputs, states, weights, *_ = arguments
    states = states if function is torch.lstm else (states,)
    tensors = (inputs, *states, *weights)
    plain = all(torch_compat.unwrapped(tensor) is tensor for tensor in tensors)
    alike = len({tensor.dtype for tensor in tensors}) == 1 and inputs.dim() == 3
    return plain and alike and not torch.is_autocast_enabled(inputs.device.type)


def unrolled(
    step: Step, states: States, gates: Tensor, shared: Sequence[Any], reverse: bool
) -> tuple[States, Tensor]:
    """A `Loop` with each step written out."""
    outputs = []
    for of_step in gates.unbind(0)[:: -1 if reverse else 1]:
        states = step(states, of_step, *shared)
        outputs.append(states[0])
    return states, torch.stack(outputs[::-1] if reverse else outputs)


def on_fakes(
    step: Step, states: States, gates: Tensor, shared: Sequence[Any], reverse: bool
) -> tuple[States, Tensor]:
    """A `Loop` over fakes: one step tells what all give."""

    def combine(states: States, of_step: Tensor) -> tuple[States, Tensor]:
        states = step(states, of_step, *shared)
        return states, states[0]

    return scan_on_fakes(combine, states, gates)  # type: ignore[no-any-return]


def by(function: Any, loop: Loop) -> RunLayer:
    """How to run a layer of `function` by a loop over its steps."""

    def run(
        layer: Layer, inputs: Tensor, states: States, batch_first: bool
    ) -> tuple[States, Tensor]:
        # As one product: in C++ of torch 2.11, `linear` of three dimensions takes no symbols.
        steps = functional.linear(inputs.flatten(0, 1), layer.of_input, layer.input_bias)
        gates = steps.unflatten(0, inputs.shape[:2])
        gates = gates.transpose(0, 1) if batch_first else gates
        shared = [layer.of_hidden, layer.hidden_bias, layer.projection]
        return loop(STEPS[function], states, gates, shared, layer.reverse)

    return run


def recurrent(
    function: Any,
    run_layer: RunLayer,
    inputs: Tensor,
    states: Any,
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The results of `function`, one of `STEPS`, for a padded batch: the last layer's outputs, and
    the last states of each layer and direction.

    `inputs`: (length, batch, features), or (batch, length, features) with `batch_first`. The
    hidden state, and with an LSTM a pair of states: (layers * directions, batch, size).
    """
    directions = 2 if bidirectional else 1
    first = list(zip(*states, strict=True) if function is torch.lstm else zip(states, strict=True))
    per_direction = len(weights) // (layers * directions)
    parameters = iter(weights)
    last: list[States] = []
    for number in range(layers):
        outputs = []
        for direction in range(directions):
            of_input, of_hidden, *others = islice(parameters, per_direction)
            input_bias, hidden_bias = others[:2] if has_biases else (None, None)
            projection = others[-1] if len(others) % 2 else None
            layer = Layer(
                of_input,
                of_hidden,
                input_bias,
                hidden_bias,
                projection,
                reverse=direction == 1,
                training=training,
            )
            transposed = batch_first and number == 0
            state, output = run_layer(layer, inputs, first[len(last)], transposed)
            outputs.append(output)
            last.append(state)
        inputs = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if dropout and training and number < layers - 1:
            inputs = functional.dropout(inputs, dropout)
    result = inputs.transpose(0, 1) if batch_first else inputs
    return result, *map(torch.stack, zip(*last, strict=True))
