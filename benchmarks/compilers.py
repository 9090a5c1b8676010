"""What is compared: eager, torch.compile, and fusewright behind either front end.

Each compiler is imported where it is first used, so that the cold first call pays for its imports.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import nn

Compiled = Callable[..., Any]

EAGER = "eager"
PEER = "torch.compile"
OURS = "fusewright"

OPENVINO = "openvino"
ONNX_RUNTIME = "onnxruntime"

FROZEN = "frozen"
"""In place of a front end: its own, with frozen weights."""


def eager(module: nn.Module) -> Compiled:
    """The model as it is."""
    return module


def peer(module: nn.Module) -> Compiled:
    """torch.compile with its default backend."""
    import torch

    return torch.compile(module, fullgraph=True)


def own(module: nn.Module) -> Compiled:
    """fusewright with its own capture."""
    import fusewright

    compiled: Compiled = fusewright.compile(module, fullgraph=True)
    return compiled


def frozen(module: nn.Module) -> Compiled:
    """fusewright with its own capture, and weights taken for constants."""
    import fusewright

    compiled: Compiled = fusewright.compile(module, fullgraph=True, options={"freeze": True})
    return compiled


def openvino(module: nn.Module) -> Compiled:
    """OpenVINO, which takes weights for constants."""
    from benchmarks.openvino_peer import OpenVinoModel

    return OpenVinoModel(module)


def onnx_runtime(module: nn.Module) -> Compiled:
    """ONNX Runtime, which takes weights for constants."""
    from benchmarks.onnxruntime_peer import OnnxRuntimeModel

    return OnnxRuntimeModel(module)


def behind_torch(module: nn.Module) -> Compiled:
    """fusewright as a backend of torch.compile."""
    import torch

    return torch.compile(module, backend="fusewright", fullgraph=True)


def compiler(column: str, front_end: str) -> Callable[[nn.Module], Compiled]:
    """What makes the callable of a column."""
    by_column = {
        EAGER: eager,
        PEER: peer,
        OPENVINO: openvino,
        ONNX_RUNTIME: onnx_runtime,
        OURS: {"own": own, "torch": behind_torch, FROZEN: frozen}[front_end],
    }
    return by_column[column]


def compiled_graphs() -> list[Any]:
    """Every compiled graph of fusewright that is alive in this process."""
    from fusewright.runtime.compiled import CompiledGraph

    # `type` and not `isinstance`, which would ask dead weak references for their class.
    return [thing for thing in gc.get_objects() if type(thing) is CompiledGraph]


def own_traffic() -> dict[str, Any]:
    """Kernel launches a call, the bytes they move, extern calls, and seconds a stage."""
    records = [graph.record for graph in compiled_graphs()]
    stages: Counter[str] = Counter()
    for record in records:
        stages.update(record.timings)
    return {
        "launches": sum(record.launch_count for record in records),
        "distinct_kernels": sum(len(record.kernels) for record in records),
        "bytes": sum(record.bytes_moved for record in records),
        "extern_calls": sum(len(record.extern_calls) for record in records),
        "stages": dict(stages),
    }


def predicted_saved_bytes() -> int:
    """Bytes kept for backward beside inputs, as fusewright knew them while it compiled."""
    plans = (graph.training for graph in compiled_graphs())
    return sum(plan.saved_bytes for plan in plans if plan is not None)


def peer_is_available() -> bool:
    """Whether torch.compile finds a C++ compiler, without which it compiles nothing for a CPU."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++", "cl")
    return any(name and shutil.which(name) for name in names)
