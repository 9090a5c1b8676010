"""Backend `cudagraphs`: ATen graphs on a GPU, recorded and replayed as they are, without generated
kernels. A baseline, and a way to tell a fault of recording from one of code generation.

    graph before                          after
    ------------                          -----
    %a = aten.mm(%x, %w)                  %part_0 = Replayer(%x, %w)        mm, relu
    %b = aten.relu(%a)
    %c = aten.nonzero(%b)                 %part_1 = call_module(%part_0)    nonzero, as it is
    %d = aten.sum(%b)                     %part_2 = Replayer(%part_0)       sum

Tracing has made the graph functional by then: what the program writes to an input is a result that
is copied back behind the graph, so that recordings write to no input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from fusewright import torch_compat
from fusewright.aot import aot_autograd, min_cut_rematerialization_partition
from fusewright.runtime.cuda_graphs import Replayer, ReplayFacts, current_pool
from fusewright.torch_compat.trees import flatten_tree

WAITS_FOR_THE_GPU = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
"""Tags of operators whose results' sizes, or numbers, the host has to read."""


def why_not_recorded(node: fx.Node) -> str:
    """Why a node cannot be part of a recording; empty: it can."""
    if node.op == "get_attr":
        return ""
    if node.op != "call_function":
        return f"{node.op} is no operator"
    for tag in getattr(node.target, "tags", ()):
        if tag in WAITS_FOR_THE_GPU:
            return f"the host waits for what {node.target} gives"
    values = [node.meta.get("val"), *(other.meta.get("val") for other in node.all_input_nodes)]
    for value in flatten_tree(values)[0]:
        if isinstance(value, torch.Tensor) and value.device.type != torch_compat.cuda.TYPE:
            return f"{node.name} has a tensor on {value.device}"
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return f"{node.name} has sizes that vary"
    return ""


def record_parts(module: fx.GraphModule) -> fx.GraphModule:
    """`module` in parts, in order, those that can be recorded replaced by what replays them. A part
    is of one GPU.
    """
    parts: dict[fx.Node, int] = {}
    devices: list[int | None] = []
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        device = None if why_not_recorded(node) else _device_of(node)
        if not devices or devices[-1] != device:
            devices.append(device)
        parts[node] = len(devices) - 1
    whole = split_module(module, module, lambda node: parts.get(node, 0))
    for number, device in enumerate(devices):
        if device is not None:
            name = f"submod_{number}"
            setattr(whole, name, _RecordedPart(whole.get_submodule(name), device))
    return whole


class _RecordedPart(torch.nn.Module):
    """A part of a graph, replayed."""

    def __init__(self, part: torch.nn.Module, device: int) -> None:
        super().__init__()
        self.part = part
        self.replayer = Replayer(self._call, ReplayFacts(), partial(current_pool, device))
        self._is_tuple = True

    def _call(self, inputs: list[Any]) -> tuple[Any, ...]:
        outputs = self.part(*inputs)
        inputs.clear()
        self._is_tuple = isinstance(outputs, tuple | list)
        return tuple(outputs) if self._is_tuple else (outputs,)

    def forward(self, *inputs: Any) -> Any:
        outputs = self.replayer(list(inputs))
        return outputs if self._is_tuple else outputs[0]


def _device_of(node: fx.Node) -> int:
    """The number of the GPU that computes a node."""
    values = flatten_tree(node.meta.get("val"))[0]
    return next((value.device.index or 0 for value in values if isinstance(value, torch.Tensor)), 0)


def _compiler(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return record_parts(module).forward


cudagraphs = aot_autograd(fw_compiler=_compiler, partition_fn=min_cut_rematerialization_partition)
"""Traced ATen graphs, forward and backward, recorded at their second call."""
