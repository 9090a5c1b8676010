"""The backend that runs a captured graph as it stands: faults that stay are those of capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def eager(
    graph_module: fx.GraphModule, example_inputs: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """The graph's own `forward`."""
    return graph_module.forward
