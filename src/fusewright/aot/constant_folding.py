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
from fusewright.fake.known_values import run_on_cpu
from fusewright.operators import facts
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten


def fold_constants(graph: fx.Graph) -> int:
    """Replace calls of a functional graph whose arguments are filled tensors by `full`. Gives how
    many were replaced.
    """
    folded = 0
    for node in list(graph.nodes):
        number = _number(node)
        if number is None:
            continue
        fake = node.meta["val"]
        options = {"dtype": fake.dtype, "device": fake.device}
        with graph.inserting_before(node):
            full = graph.call_function(aten.full.default, (list(fake.shape), number), options)
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)
        graph.erase_node(node)
        folded += 1
    return folded


def _number(node: fx.Node) -> float | None:
    """The number that fills the result of a call of filled tensors; None where it is not known to
    be filled with one, or is laid out in another way than `full` does.
    """
    target: Any = node.target
    inputs = node.all_input_nodes
    if not isinstance(target, OpOverload) or not inputs or not all(map(_is_filled, inputs)):
        return None
    fake = node.meta["val"]
    if not isinstance(fake, torch.Tensor) or not all(isinstance(size, int) for size in fake.shape):
        return None
    if not fake.is_contiguous() or fake.dtype.is_complex:
        return None
    if torch_compat.is_view_operator(target):
        element = _element(inputs[0]) if target is not aten.view.dtype else None
    elif torch.Tag.pointwise in target.tags or facts(target).keeps_filled:
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), _element)
        element = run_on_cpu(target, args, kwargs)
    else:
        return None
    return element.item() if element is not None and element.dtype == fake.dtype else None


def _is_filled(node: fx.Node) -> bool:
    """Whether a node is a `full` of a number that no size decides."""
    return node.target is aten.full.default and not isinstance(node.args[1], fx.Node)


def _element(full: fx.Node) -> torch.Tensor:
    """Any element of a filled tensor."""
    number: Any = full.args[1]
    return torch.full((), number, dtype=full.meta["val"].dtype, device="cpu")
