"""The clean-up of a functional graph: passes after which it has fewer and cheaper calls."""

from __future__ import annotations

import functools
from typing import Final

import torch

from fusewright.aot.accumulation import accumulate_in_place
from fusewright.aot.common_subexpressions import merge_common_subexpressions
from fusewright.aot.constant_folding import fold_constants
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph, constants_of
from fusewright.aot.joint import JointGraph
from fusewright.aot.kernel_draws import join_draws_of_seeds
from fusewright.aot.no_operations import remove_no_operations
from fusewright.aot.verify import verify_graph
from fusewright.aot.waits import sink_waits
from fusewright.passes import Pass

PASSES: Final = (
    Pass("no-operations", remove_no_operations),
    Pass("constants", fold_constants),
    Pass("equal-calls", merge_common_subexpressions),
    Pass("accumulation", accumulate_in_place),
    Pass("seeds", join_draws_of_seeds),
    Pass("waits", sink_waits),
)
"""Passes in the order in which they run, before dead code: `run(graph)` changes a graph in place
and gives how many calls it replaced.
"""


def clean_up(graph: AtenGraph | JointGraph, *, verify: bool = False) -> dict[str, torch.Tensor]:
    """Run all passes and remove dead code; gives the constants that are still read. `verify`: the
    graph is checked after each pass.
    """
    tangents = graph.tangent_nodes if isinstance(graph, JointGraph) else ()
    dead_code = Pass("dead-code", functools.partial(remove_dead_code, tangents=tangents))
    for graph_pass in (*PASSES, dead_code):
        graph_pass.run(graph.graph)
        if verify:
            verify_graph(graph.graph, graph_pass.name)
    return constants_of(graph.graph, graph.constants)
