"""Gradients that steps of a loop add up, summed at once when the loop has run.

    in each step:  sum = sum + mm(t(a), b)    ->    behind the loop:  mm(t(rows(a)), rows(b))

`rows(a)` are those of all steps. One product of long matrices takes the place of one for each step,
and nothing of the size of a weight is read and written in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, fx

from fusewright.records import record

aten = torch.ops.aten


@record(eq=False)
class Sum:
    """A sum over all steps."""

    factors: tuple[fx.Node, ...]
    """Values in each step that it is computed from."""

    of_stacks: Callable[..., Tensor]
    """Takes these values of all steps, each stacked along a first dimension; gives the sum."""


def dependent(nodes: Iterable[fx.Node | None]) -> set[fx.Node]:
    """The nodes that are computed from `nodes`, and these."""
    reached: set[fx.Node] = set()
    stack = [node for node in nodes if node is not None]
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(node.users)
    return reached


def sum_over_steps(node: fx.Node, of_steps: set[fx.Node]) -> Sum | None:
    """How to sum the value of `node` over all steps from what makes it; None where there is nothing
    better than to add it up. `of_steps`: the values that are others in each step.
    """
    source: Any = node.args[0] if node.args else None
    match node.target:
        case aten.t.default:
            return _then(sum_over_steps(source, of_steps), Tensor.t)
        case aten.view.default:
            shape = node.meta["val"].shape
            return _then(sum_over_steps(source, of_steps), lambda total: total.reshape(shape))
        case aten.sum.dim_IntList if source in of_steps and node.args[1] and not node.kwargs:
            size: Any = node.args[1]
            dims = [0, *(dim % source.meta["val"].dim() + 1 for dim in size)]
            shape = node.meta["val"].shape
            return Sum((source,), lambda stack: stack.sum(dims).reshape(shape))
        case aten.mm.default if of_steps.issuperset(node.all_input_nodes):
            left, right = source, cast(fx.Node, node.args[1])
            if left.target is aten.t.default:
                return Sum((left.args[0], right), _matrix_product)
            return Sum(
                (left, right), lambda left, right: _matrix_product(left.transpose(1, 2), right)
            )
    return None


def _then(sum_: Sum | None, function: Callable[[Tensor], Tensor]) -> Sum | None:
    if sum_ is None:
        return None
    return Sum(sum_.factors, lambda *stacks: function(sum_.of_stacks(*stacks)))


def _matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """`left.T @ right`, where the first two dimensions of both, steps and rows, are flattened."""
    return left.flatten(0, 1).t() @ right.flatten(0, 1)
