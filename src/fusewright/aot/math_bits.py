"""Computes conjugates and negations that torch would only note in a bit of the tensor.

    conj = aten._conj(x)
    clone = aten.clone(conj)          ->     clone = aten.conj_physical(x)
    mul = aten.mul(clone, y)                 mul = aten.mul(clone, y)

Eager's `x.conj()` is a view of `x` with its conjugate bit set (and `x.conj().imag` one with its
negative bit); generated code reads memory, where the bits do not show. Until here the two operators
are views like others, so that writes are seen through them; fakes carry the bits, so that torch
itself clones what an operator cannot take. What was computed may be laid out otherwise than its
source, an expanded tensor say, and with it all views of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusewright.aot.functionalize import view_source
from fusewright.fake import FakeMode
from fusewright.fake_rules.geometry import same_sizes

aten = torch.ops.aten

COMPUTED: dict[Any, Any] = {
    aten._conj.default: aten.conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}
"""By operator that flips a bit, the operator that computes new elements."""


def compute_math_bits(graph: fx.Graph, fakes: FakeMode) -> None:
    """Replace the operators of `COMPUTED` in a functional graph, and copies of what they gave."""
    laid_out_anew: set[fx.Node] = set()
    for target, computing in COMPUTED.items():
        for node in graph.find_nodes(op="call_function", target=target):
            (source,) = node.args
            if not isinstance(source, fx.Node):  # a number, in the gradient of `x * 2j`
                number = computing(torch.tensor(source, device="cpu")).item()
                node.target, node.args = aten.full.default, ([], number)
                node.kwargs = {"dtype": node.meta["val"].dtype}
                node.meta["val"] = fakes.dispatch(node.target, node.args, node.kwargs)
                continue
            node.target = computing
            _run_again(node, fakes, laid_out_anew)
            for user in list(node.users):
                if is_clone_of(user, node):
                    user.target, user.kwargs = computing, {}
                    user.args = node.args
    for node in graph.nodes if laid_out_anew else ():
        if view_source(node) in laid_out_anew:
            _run_again(node, fakes, laid_out_anew)


def _run_again(node: fx.Node, fakes: FakeMode, laid_out_anew: set[fx.Node]) -> None:
    """Say anew what `node` gives, and note it where its strides are other ones than before."""
    before = node.meta["val"]
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    node.meta["val"] = fakes.dispatch(node.target, args, kwargs)
    if not same_sizes(node.meta["val"].stride(), before.stride()):
        laid_out_anew.add(node)


def is_clone_of(user: fx.Node, node: fx.Node) -> bool:
    """Whether `user` copies `node` and lays the copy out alike."""
    return user.target is aten.clone.default and same_sizes(
        user.meta["val"].stride(), node.meta["val"].stride()
    )
