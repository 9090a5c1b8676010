"""Removes operators whose result is their argument.

    mul = aten.mul(x, 1)                             exp = aten.exp(x)
    view = aten.view(mul, [2, 3])  (as it is)   ->
    _to_copy = aten._to_copy(view, dtype=float32)  (it is)
    exp = aten.exp(_to_copy)

The result must have the type, the layout and the device of the argument, and the argument must not
be returned in its place where it is an input or is returned already, since results have memory of
their own. `x + 0` stays: it turns -0.0 into 0.0. So does `z / 1` of complex numbers: one is 1+0j,
and an infinite part times its 0 is NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusewright.aot.functionalize import view_source
from fusewright.fake_rules.geometry import same_sizes
from fusewright.operators import Neutral, facts

aten = torch.ops.aten


def _is_neutral(node: fx.Node) -> bool:
    """Whether a call that gives the geometry of its first argument changes nothing."""
    match facts(node.target).neutral:
        case Neutral.ANY:
            return True
        case Neutral.ONE:
            is_one = len(node.args) == 2 and node.args[1] in (1, 1.0) and not node.kwargs
            return is_one and not node.meta["val"].dtype.is_complex
        case Neutral.ZEROS:
            return not any(node.args[1])  # type: ignore[arg-type]
        case _:
            return False


def remove_no_operations(graph: fx.Graph) -> int:
    """Replace each call of a functional graph that changes nothing by its argument. Gives how many
    were replaced.
    """
    kept = _of_memory_that_matters(graph)
    removed = 0
    for node in list(graph.nodes):
        if node.op != "call_function" or node in kept:
            continue
        if not _is_neutral(node) or not is_alike(node.args[0], node):
            continue
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
        removed += 1
    return removed


def _of_memory_that_matters(graph: fx.Graph) -> set[fx.Node]:
    """The results, what `as_strided` is called on, since it counts from where that memory begins,
    and what these are views of.
    """
    restrided = graph.find_nodes(op="call_function", target=aten.as_strided.default)
    shown: set[fx.Node] = set()
    for kept in (*graph.output_node().all_input_nodes, *(view.args[0] for view in restrided)):
        node: fx.Node | None = kept
        while node is not None:
            shown.add(node)
            node = view_source(node)
    return shown


def is_alike(argument: Any, result: fx.Node) -> bool:
    """Whether `one` is a tensor of the type, device and layout of `result`."""
    if not isinstance(argument, fx.Node) or not isinstance(argument.meta["val"], torch.Tensor):
        return False
    before, after = argument.meta["val"], result.meta["val"]
    return (
        (before.dtype, before.device) == (after.dtype, after.device)
        and same_sizes(before.shape, after.shape)
        and same_sizes(before.stride(), after.stride())
    )
