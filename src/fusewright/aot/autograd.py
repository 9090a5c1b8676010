"""Ahead-of-time autograd for any compiler: a compiler of graphs becomes a backend, or compiles
functions and modules, with training.

    def compiler(graph_module, example_inputs):     # fake tensors
        print(graph_module.code)
        return graph_module.forward

    step = aot_function(f, fw_compiler=compiler)     # f: tensors in, tensors out
    step(x, w).sum().backward()                      # prints a forward and a backward graph
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.graph import AtenGraph
from fusewright.aot.leaves import all_as_leaves, filled
from fusewright.aot.partition import PartitionFunction, default_partition
from fusewright.aot.runtime import Compiled, in_recorded_types, with_results
from fusewright.aot.segmented_history import split_by_buckets
from fusewright.aot.shared_memory import by_relatives
from fusewright.aot.trace import needs_gradients, trace_inference, trace_training
from fusewright.aot.training import with_gradients
from fusewright.context import CompileContext
from fusewright.formulas import Formula
from fusewright.records import record
from fusewright.torch_compat.graph_modules import GraphModule

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""Compiles a functional graph of ATen operators; the result takes the graph's inputs, one by one,
and gives a tuple or list of its outputs, none of which shares memory with an input.
"""

OfOneList = Callable[[list[Any]], Any]
"""Takes a program's inputs as one list, gives its results."""


def aot_autograd(
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: PartitionFunction = default_partition,
    decompositions: Mapping[Any, Formula] | None = None,
) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    """A backend that trains, from a compiler that knows nothing of autograd.

    `fw_compiler` gets the forward graph, or the only one where nothing requires grad. `bw_compiler`
    gets the backward graph, at the first backward, or under `DistributedDataParallel` a part of it
    for each bucket of gradients; `fw_compiler` by default. `partition_fn` cuts the joint graph in
    two. `decompositions`: by operator, a function that computes it by others.

    The backend takes a graph of torch calls and one example for each input. What it returns takes
    the graph's inputs and gives its results. Raises: `Unsupported`, for what cannot be traced.
    """
    rules = decompositions or {}

    def compiled(module: fx.GraphModule, example_inputs: Sequence[Any]) -> OfOneList:
        context = CompileContext()
        if not needs_gradients(module, example_inputs):
            graph = trace_inference(module, example_inputs, context, rules)
            return with_results(graph, _compiled(fw_compiler, graph))
        partition = partition_fn(trace_training(module, example_inputs, context, rules))

        def compile_backward(backward: AtenGraph) -> Compiled:
            return in_recorded_types(_compiled(bw_compiler or fw_compiler, backward))

        run = with_gradients(
            partition,
            in_recorded_types(_compiled(fw_compiler, partition.forward)),
            compile_backward,
            add_histories=split_by_buckets(partition, compile_backward),
        )
        if partition.joint.bases:
            run = by_relatives(example_inputs, run, lambda others: compiled(module, others))
        return run

    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return OneByOne(compiled(module, example_inputs))

    return backend


@record
class OneByOne:
    """A compiled program that takes its inputs one by one."""

    writes_last: ClassVar = True
    """Whether inputs are written to when all else is done: see `runtime.compiled.CompiledGraph`."""

    run: OfOneList

    def __call__(self, *inputs: Any) -> Any:
        return self.run(list(inputs))


def _compiled(compiler: Compiler, graph: AtenGraph) -> Compiled:
    function = compiler(graph.graph_module(), [node.meta["val"] for node in graph.placeholders])

    def run(inputs: list[Any]) -> Sequence[Any]:
        arguments = tuple(inputs)
        inputs.clear()
        return function(*arguments)  # type: ignore[no-any-return]

    return run


def aot_function(
    function: Callable[..., Any],
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: PartitionFunction = default_partition,
    decompositions: Mapping[Any, Formula] | None = None,
) -> Callable[..., Any]:
    """`function` traced as a whole, once for each kind of arguments, and compiled; differentiable.

    Arguments and results are tensors and numbers, in any nesting of tuples, lists and dicts. The
    kind of arguments: their nesting, the values of numbers, and of tensors sizes, strides, dtype,
    device, whether they require grad, and which share memory. Whatever else `function` reads is
    taken as it is at the first call. The compilers are those of `aot_autograd`.
    """
    backend = aot_autograd(
        fw_compiler=fw_compiler,
        bw_compiler=bw_compiler,
        partition_fn=partition_fn,
        decompositions=decompositions,
    )
    functions: dict[Any, Callable[..., Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = all_as_leaves((args, kwargs), leaves)
        kind = (repr(structure), torch.is_grad_enabled(), *_kinds(leaves))
        compiled = functions.get(kind)
        if compiled is None:
            compiled = functions[kind] = backend(
                _as_graph(function, structure, len(leaves)), leaves
            )
        return compiled(*leaves)

    return call


def _as_graph(function: Callable[..., Any], structure: Any, count: int) -> fx.GraphModule:
    """A graph of one call, which tracing looks into."""

    def call(*leaves: Any) -> Any:
        args, kwargs = filled(structure, leaves)
        return function(*args, **kwargs)

    graph = fx.Graph()
    inputs = [graph.placeholder(f"input{index}") for index in range(count)]
    graph.output(graph.call_function(call, tuple(inputs)))
    return GraphModule({}, graph)


def _kinds(leaves: Sequence[Any]) -> list[Any]:
    """The properties of each leaf that a compilation depends on."""
    memory: dict[int, int] = {}
    kinds: list[Any] = []
    for position, value in enumerate(leaves):
        if not isinstance(value, torch.Tensor):
            kinds.append((type(value), value))
            continue
        owner = memory.setdefault(torch_compat.storage_key(value), position)
        place = value.storage_offset() if owner != position else None
        geometry = (tuple(value.shape), value.stride(), value.dtype, value.device)
        history = (value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg())
        kinds.append((geometry, history, owner, place))
    return kinds


class AotModule(torch.nn.Module):
    """A module whose call is compiled by `aot_module`; it shares the original's parameters."""

    def __init__(self, module: torch.nn.Module, compilers: dict[str, Any]) -> None:
        super().__init__()
        self.module = module

        def functional(state: dict[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
            return torch_compat.functional_call(module, state, args, kwargs)

        self._call = aot_function(functional, **compilers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return self._call(state, args, kwargs)


def aot_module(module: torch.nn.Module, **compilers: Any) -> AotModule:
    """`module`, with its call compiled as by `aot_function`, which says what `compilers` may be;
    gradients reach its parameters, and what it writes to its buffers is seen.
    """
    return AotModule(module, compilers)
