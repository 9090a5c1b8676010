"""Computes while compiling what depends on filled tensors alone.

    full = aten.full([4], 2.0)                 full = aten.full([4, 1], 6.0)
    mul = aten.mul(full, 3.0)            ->    add = aten.add(x, full)
    unsqueeze = aten.unsqueeze(mul, 1)
    add = aten.add(x, unsqueeze)

A tensor all of whose elements are the same number stays one through views and pointwise operators;
the number is computed by torch itself, in the operator's own type. Those of symbolic sizes stay as
they are: kernels compute constants just as well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.operators import facts
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten


def fold_constants(graph: fx.Graph) -> int:
    """Replace calls of a functional graph whose arguments are filled tensors by `full`. Gives how
    many were replaced.
    """
    numbers: dict[fx.Node, torch.Tensor] = {}
    folded = 0
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if node.target is aten.full.default:
            if not isinstance(node.args[1], fx.Node):  # no number computed from sizes
                numbers[node] = _filled_with(node)
            continue
        number = _computed(node, numbers)
        if number is None:
            continue
        value = node.meta["val"]
        options = {"dtype": value.dtype, "device": value.device}
        with graph.inserting_before(node):
            full = graph.call_function(
                aten.full.default, (list(value.shape), number.item()), options
            )
        full.meta = dict(node.meta)
        numbers[full] = number
        node.replace_all_uses_with(full)
        graph.erase_node(node)
        folded += 1
    return folded


def _filled_with(node: fx.Node) -> torch.Tensor:
    dtype = node.meta["val"].dtype
    return torch.full((), node.args[1], dtype=dtype, device="cpu")  # type: ignore[arg-type]


def _computed(node: fx.Node, numbers: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """The number that fills the result of `node`; None where it is not known to be filled with one,
    or laid out in another way than `full` does.
    """
    target: Any = node.target
    value = node.meta["val"]
    inputs = node.all_input_nodes
    if not inputs or not all(one in numbers for one in inputs):
        return None
    if not isinstance(value, torch.Tensor) or not all(isinstance(s, int) for s in value.shape):
        return None
    if not value.is_contiguous() or value.dtype.is_complex:
        return None
    if torch_compat.is_view_operator(target):
        number = numbers[inputs[0]]
        return number if number.dtype == value.dtype and target is not aten.view.dtype else None
    if torch.Tag.pointwise not in target.tags and not facts(target).keeps_filled:
        return None
    arguments = fx.node.map_arg((node.args, dict(node.kwargs)), numbers.__getitem__)
    keywords = {name: one for name, one in arguments[1].items() if name != "device"}
    number = target(*arguments[0], **keywords)
    return number if isinstance(number, torch.Tensor) and number.dtype == value.dtype else None
