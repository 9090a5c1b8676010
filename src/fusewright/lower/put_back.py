"""Writes to views of inputs that are put back into the inputs, as to one layer's part of a cache:

    select = select(cache, 0, 1)
    index_put = index_put(select, [None, None, place], row)
    new_cache = select_scatter(cache, index_put, 0, 1)

The rows are stored into `cache` itself, at the places that they have in it. What is put back would
else be copied from it, and back into a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torch import fx

from fusewright.ir.raising import operator_name
from fusewright.operators import facts
from fusewright.records import record

STORES: Final = frozenset(
    {
        "index_add", "index_copy", "index_put", "scatter", "scatter_add", "scatter_reduce",
        "select_scatter", "slice_scatter",
    }
)  # fmt: skip
"""Operators of ATen that store into a copy of their first argument, or add to it."""


@record
class PutBack:
    """The operators that put the result of a write to a view back, which nobody else reads."""

    steps: tuple[fx.Node, ...]
    """From the innermost view to the whole tensor."""

    @property
    def whole(self) -> fx.Node:
        """The tensor that is viewed."""
        whole = self.steps[-1].args[0]
        assert isinstance(whole, fx.Node)
        return whole


def put_backs(new_values: Iterable[tuple[fx.Node, fx.Node]]) -> dict[fx.Node, PutBack]:
    """By the node that writes to a view, what puts its result back. `new_values`: results of a
    graph, each with the input whose new value it is; only writes on the way from one to the other
    are among them, since elsewhere all elements are written anyway.
    """
    by_writer: dict[fx.Node, PutBack] = {}
    for value, target in new_values:
        on_the_way: dict[fx.Node, PutBack] = {}
        node: object = value
        while isinstance(node, fx.Node) and node is not target and _stores(node):
            writer, steps = _innermost(node)
            if steps:
                on_the_way[writer] = PutBack(steps)
            node = node.args[0]
        if node is target:
            by_writer |= on_the_way
    return by_writer


def _stores(node: fx.Node) -> bool:
    return operator_name(str(node.target)) in STORES


def _innermost(node: fx.Node) -> tuple[fx.Node, tuple[fx.Node, ...]]:
    """The write to a view whose result `node` puts back, and the steps from there to `node`."""
    steps: list[fx.Node] = []
    while (inner := _written_view(node)) is not None:
        steps.append(node)
        node = inner
    return node, tuple(reversed(steps))


def _written_view(node: fx.Node) -> fx.Node | None:
    """The write to a view of the first argument of `node`, which puts back its result there."""
    match node.args:
        case (whole, fx.Node(args=(fx.Node() as view, *_)) as inner, *places):
            is_put_back = (
                _stores(inner)
                and inner.users.keys() == {node}
                and view.args[:1] == (whole,)
                and list(view.args[1:]) == places
                and view.kwargs == node.kwargs
                and _puts_back(view) == operator_name(str(node.target))
            )
            return inner if is_put_back else None
    return None


def _puts_back(view: fx.Node) -> str:
    """The operator that puts a view back; empty for what is none, or needs another one."""
    name = str(view.target)
    return facts(name).put_back_by if name.startswith("aten.") else ""
