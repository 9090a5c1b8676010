"""Runs an `AtenGraph` with eager ATen operators: the reference for what follows it, and the
`aot_eager` backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fusewright.aot.graph import AtenGraph


def interpreter(graph: AtenGraph) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function from the graph's inputs (one list, cleared) to its outputs; values are freed after
    their last use.
    """
    steps = [node for node in graph.graph.nodes if node.op in ("call_function", "get_attr")]
    placeholders = graph.placeholders
    outputs = graph.outputs
    dying = _last_uses(steps, outputs)

    def run(inputs: list[Any]) -> tuple[Any, ...]:
        values: dict[fx.Node, Any] = dict(zip(placeholders, inputs, strict=True))
        inputs.clear()
        with torch.no_grad():
            for node in steps:
                if node.op == "get_attr":
                    values[node] = graph.constants[str(node.target)]
                    continue
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
                for dead in dying.get(node, ()):
                    del values[dead]
            return tuple(_conforming(values[node], node.meta["val"]) for node in outputs)

    return run


def _last_uses(steps: list[fx.Node], outputs: tuple[Any, ...]) -> dict[fx.Node, list[fx.Node]]:
    """By step, the values that no later step and no output reads."""
    seen = set(outputs)
    dying: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(steps):
        dying[node] = [used for used in (node, *node.all_input_nodes) if used not in seen]
        dying[node] = list(dict.fromkeys(dying[node]))
        seen.update(dying[node])
    return dying


def _conforming(value: Any, like: Any) -> Any:
    """`value` with the strides that the graph promises; of an opaque one it promises none."""
    if not (isinstance(value, torch.Tensor) and isinstance(like, torch.Tensor)):
        return value
    is_symbolic = any(isinstance(stride, torch.SymInt) for stride in like.stride())
    if is_symbolic or value.stride() == like.stride():
        return value
    result = torch.empty_strided(value.shape, like.stride(), dtype=value.dtype, device=value.device)
    return result.copy_(value)
