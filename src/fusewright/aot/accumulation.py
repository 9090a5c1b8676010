"""Adds rows to a sum, in place of adding a table that is zero but for those rows.

    full = aten.full([30522, 768], 0)                    sum = aten.index_put(
    table = aten.index_put(full, [words], rows, True)        mm, [words], rows, True
    sum = aten.add(mm, table)                         -> )

A weight that is both an embedding and a matrix has such a gradient. The table need not be filled,
written and read, nor a second one for the sum: the rows are added in the product's own memory. But
for the sign of zeros, nothing changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusewright.aot.no_operations import is_alike

aten = torch.ops.aten


def accumulate_in_place(graph: fx.Graph) -> int:
    """Replace each such sum in a functional graph. Gives how many were replaced."""
    replaced = 0
    for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if len(node.args) != 2 or node.kwargs:
            continue
        for other, table in (node.args, reversed(node.args)):
            if other is not table and _is_sparse(table) and is_alike(other, node):
                _, indices, rows, _ = table.args
                node.target = aten.index_put.default
                node.args = (other, indices, rows, True)
                graph.erase_node(table)
                replaced += 1
                break
    return replaced


def _is_sparse(node: Any) -> bool:
    """Whether a sum is all that reads `node`, rows added to zeros."""
    if not isinstance(node, fx.Node) or node.target is not aten.index_put.default:
        return False
    base, *_, accumulates = node.args
    if len(node.users) > 1 or accumulates is not True or not isinstance(base, fx.Node):
        return False
    return base.target is aten.full.default and base.args[1] in (0, 0.0)
