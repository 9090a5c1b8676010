"""The LSTM step by step, for graphs with gradients.

On CPUs `torch.lstm` is a call of oneDNN for each layer and direction, whose backward needs a
workspace of a size that only oneDNN knows, made only while gradients are on. Gates written out can
be differentiated, and fused, as anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fusewright.errors import UnsupportedOperator


def lstm(
    inputs: Tensor, states: Any, weights: Any, has_biases: Any, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.lstm` of a padded batch: the last layer's outputs, and the last hidden and cell states
    of each layer and direction.

    `inputs`: (length, batch, features), or (batch, length, features) with the option batch_first.
    The equations are those of `torch.nn.LSTM`'s documentation, projections included.

    A symbolic length becomes a constant. Raises: `UnsupportedOperator`, for packed sequences.
    """
    if isinstance(states, Tensor):  # the overload whose second argument is the batch's sizes
        raise UnsupportedOperator("an LSTM over a packed sequence, with gradients")
    layers, dropout, training, bidirectional, batch_first = options
    if batch_first:
        inputs = inputs.transpose(0, 1)

    directions = 2 if bidirectional else 1
    first_hidden, first_cell = states
    per_direction = len(weights) // (layers * directions)
    parameters = iter(weights)
    last_states: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        found = []
        for direction in range(directions):
            number = layer * directions + direction
            state = (first_hidden[number], first_cell[number])
            own = list(islice(parameters, per_direction))
            outputs, state = _scan(own, has_biases, inputs, state, backwards=direction == 1)
            found.append(outputs)
            last_states.append(state)
        inputs = found[0] if len(found) == 1 else torch.cat(found, -1)
        if dropout and training and layer < layers - 1:
            inputs = functional.dropout(inputs, dropout)

    hidden, cell = zip(*last_states, strict=True)
    result = inputs.transpose(0, 1) if batch_first else inputs
    return result, torch.stack(hidden), torch.stack(cell)


def _scan(
    weights: Sequence[Tensor],
    has_biases: bool,
    inputs: Tensor,
    state: tuple[Tensor, Tensor],
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer in one direction: its output at every step, and its last state."""
    of_input, of_hidden, *others = weights
    input_bias, hidden_bias = others[:2] if has_biases else (None, None)
    projection = others[2 * has_biases] if len(others) > 2 * has_biases else None

    steps = functional.linear(inputs, of_input, input_bias).unbind(0)  # one product for all steps
    hidden, cell = state
    outputs = []
    for of_step in reversed(steps) if backwards else steps:
        gates = of_step + functional.linear(hidden, of_hidden, hidden_bias)
        enter, forget, candidate, leave = gates.chunk(4, 1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        if projection is not None:
            hidden = functional.linear(hidden, projection)
        outputs.append(hidden)
    return torch.stack(outputs[::-1] if backwards else outputs), (hidden, cell)
