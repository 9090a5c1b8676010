"""Opaque values: Python objects that one call of a graph gives and another takes, say what a
library call of a forward graph keeps for its gradient, whose size only the library knows.

At run time it is a tuple, of tensors or of further tuples, that shares no memory with what the call
was given or else gives: autograd saves its tensors as any others (`aot/training.py`). While a graph
is traced and compiled, an `Opaque` stands for it; in the IR it is a buffer of type `opaque`, which
has no memory that is planned, and which no kernel reads.
"""

from __future__ import annotations

from typing import Any

import torch


class Opaque:
    """Stands for one opaque value in a traced graph."""

    def __repr__(self) -> str:
        return "opaque"


BUFFERS = (torch.Tensor, Opaque)
"""Classes of the values in a traced graph that become buffers; others are numbers."""


def is_number(value: Any) -> bool:
    """Whether a value in a traced graph is neither a tensor nor opaque."""
    return not isinstance(value, BUFFERS)
