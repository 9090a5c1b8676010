"""The invariants of a functional graph between the passes of this floor; the option `verify` checks
them.

1. A node reads nodes of the same graph that stand before it.
2. A call names an operator or another callable, and has its result on fakes in `meta["val"]`.
3. The output stands last, and there is one.
"""

from __future__ import annotations

from torch import fx

from fusewright.errors import MalformedProgram


def verify_graph(graph: fx.Graph, after: str) -> None:
    """Raise MalformedProgram, which names the pass that ran, for what does not hold."""
    defined: set[fx.Node] = set()
    for node in graph.nodes:
        reason = _wrong(node, defined)
        if reason is not None:
            raise MalformedProgram(f"after the pass {after}: {node.format_node()}: {reason}")
        defined.add(node)
    ends = [place for place, node in enumerate(graph.nodes, 1) if node.op == "output"]
    if ends != [len(graph.nodes)]:
        raise MalformedProgram(f"after the pass {after}: the output is not the last node alone")


def _wrong(node: fx.Node, defined: set[fx.Node]) -> str | None:
    """The reason why a node must not stand behind those that are `defined`, or None."""
    for read in node.all_input_nodes:
        if read not in defined:
            return f"it reads {read.name}, which does not stand before it"
    if node.op == "call_function" and not callable(node.target):
        return "it calls nothing"
    if node.op == "call_function" and "val" not in node.meta:
        return "its result on fakes is not known"
    return None
