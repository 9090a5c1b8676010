"""Computes equal calls once.

    a = aten.exp(x)                          a = aten.exp(x)
    b = aten.exp(x)                   ->     c = aten.add(a, a)
    c = aten.add(a, b)

Calls are equal when operator, arguments and result geometry are. Random operators are never equal
to one another, nor are factories of memory that is not filled.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import torch
from torch import fx

from fusewright.aot.functionalize import memory_owner, shown_memory
from fusewright.aot.symbols import PROMISED, READ_AGAIN
from fusewright.ir.relations import equal
from fusewright.operators import facts
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten


def merge_common_subexpressions(graph: fx.Graph) -> int:
    """Replace each call of a functional graph that an earlier one equals. Gives how many were
    replaced.
    """
    node_of: dict[Hashable, fx.Node] = {}
    results = graph.output_node().all_input_nodes
    returned = {*results, *map(memory_owner, results), *map(shown_memory, results)}
    items = _returned_items(returned)
    merged = 0
    for node in list(graph.nodes):
        is_call = node.op == "call_function" and is_repeatable(node.target)
        if not is_call or node.meta.get(READ_AGAIN):
            continue
        key = (node.target, _key(node.args), _key(node.kwargs), _layout(node))
        earlier = node_of.setdefault(key, node)
        # Two results of a program have memory of their own, so what holds them stays two nodes.
        both_returned = node in returned and earlier in returned
        if earlier is node or both_returned or items[node] & items[earlier]:
            continue
        items[earlier] |= items[node]
        if node in returned:
            returned.add(earlier)
        identify(earlier.meta.get("val"), node.meta.get("val"))
        earlier.meta[PROMISED] = earlier.meta.get(PROMISED) or node.meta.get(PROMISED)
        node.replace_all_uses_with(earlier)
        graph.erase_node(node)
        merged += 1
    return merged


def _returned_items(returned: set[fx.Node]) -> defaultdict[fx.Node, set[int]]:
    """By call of several results: which of them the program returns."""
    items: defaultdict[fx.Node, set[int]] = defaultdict(set)
    for node in returned:
        if node.target is operator.getitem:
            call, place = node.args
            items[call].add(place)  # type: ignore[index, arg-type]
    return items


def identify(kept: Any, gone: Any) -> None:
    """Let sizes that depend on data be equal where one operator gave them twice."""
    if isinstance(kept, (tuple, list)):
        for own, other in zip(kept, gone, strict=True):
            identify(own, other)
    elif isinstance(kept, torch.Tensor):
        identify(tuple(kept.shape), tuple(gone.shape))
    elif isinstance(kept, torch.SymInt) and isinstance(gone, torch.SymInt):
        kept.node.facts.assume(equal(index_of(kept), index_of(gone)))


def _layout(node: fx.Node) -> Hashable:
    """Copies differ when laid out differently, which their arguments do not always tell."""
    if node.target is not aten.clone.default:
        return None
    return tuple(str(stride) for stride in node.meta["val"].stride())


def is_repeatable(target: Any) -> bool:
    """Whether two calls with equal arguments give the same."""
    if not isinstance(target, OpOverload):
        return True
    return torch.Tag.nondeterministic_seeded not in target.tags and not facts(target).is_unfilled


def _key(value: Any) -> Hashable:
    """Arguments as a hashable value; numbers carry their type and sign, since 1, 1.0 and True are
    equal, as 0.0 and -0.0.
    """
    match value:
        case fx.Node():
            return value
        case list() | tuple():
            return tuple(_key(item) for item in value)
        case dict():
            return tuple((name, _key(item)) for name, item in sorted(value.items()))
        case bool() | int() | str() | None:
            return (type(value), value)
        case float():
            return (float, value.hex())
        case slice():
            return (slice, _key(value.start), _key(value.stop), _key(value.step))
        case _:
            return value if isinstance(value, Hashable) else id(value)
