"""Nested containers as torch's exporter takes them apart; graphs that take and return them."""

from __future__ import annotations

from typing import Any

from torch.fx import graph
from torch.utils import _pytree

flatten_tree = _pytree.tree_flatten
"""The leaves of nested containers, and their structure: a list and a `TreeSpec`."""

map_tree = _pytree.tree_map
"""Nested containers with a function applied to each leaf."""


def tree_codegen(names: list[str], in_spec: Any, out_spec: Any) -> graph.CodeGen:
    """How a graph's code takes and returns nested containers: arguments of these names, whose
    `(args, kwargs)` has the structure `in_spec`.
    """
    return graph._PyTreeCodeGen(graph._PyTreeInfo(names, in_spec, out_spec))
