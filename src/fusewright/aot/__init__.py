"""One torch-level graph to functional ATen graphs, for inference or for training, and the calling
convention around what is compiled from them.

Read in this order: `graph` (what comes out), `trace` (the entrances), `tracer`, `mutations`,
`decompositions`, `functionalize`, `shared_memory`, `results`, the clean-up passes, `runtime`; then
for training `joint`, `partition`, `training`, and `autograd`, the public pieces.
"""

from __future__ import annotations

from fusewright.aot import embedding_bags as _bags  # noqa: F401  (says how those are recorded)
from fusewright.aot import recurrent as _recurrent  # noqa: F401
from fusewright.aot.autograd import aot_autograd, aot_function, aot_module
from fusewright.aot.control_flow import ControlFlowCall
from fusewright.aot.eager_calls import EagerCall
from fusewright.aot.freezing import FrozenGraph, freeze, weights_of
from fusewright.aot.graph import AtenGraph, block_graphs
from fusewright.aot.interpret import interpreter
from fusewright.aot.joint import JointGraph
from fusewright.aot.loop_calls import LoopCall
from fusewright.aot.origins import first_location
from fusewright.aot.partition import Partition, PartitionFunction, default_partition
from fusewright.aot.rematerialization import min_cut_rematerialization_partition
from fusewright.aot.runtime import in_recorded_types, returns_results, with_results
from fusewright.aot.segmented_history import split_by_buckets
from fusewright.aot.shared_memory import by_relatives
from fusewright.aot.trace import (
    COMPILER_DECOMPOSITIONS,
    has_symbols,
    needs_gradients,
    trace_inference,
    trace_training,
)
from fusewright.aot.training import with_gradients

__all__ = [
    "COMPILER_DECOMPOSITIONS",
    "AtenGraph",
    "ControlFlowCall",
    "EagerCall",
    "FrozenGraph",
    "JointGraph",
    "LoopCall",
    "Partition",
    "PartitionFunction",
    "aot_autograd",
    "aot_function",
    "aot_module",
    "block_graphs",
    "by_relatives",
    "default_partition",
    "first_location",
    "freeze",
    "has_symbols",
    "in_recorded_types",
    "interpreter",
    "min_cut_rematerialization_partition",
    "needs_gradients",
    "returns_results",
    "split_by_buckets",
    "trace_inference",
    "trace_training",
    "weights_of",
    "with_gradients",
    "with_results",
]
