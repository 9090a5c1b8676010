"""Count the kernels that torch.compile generates: launches a call, and bytes that they move.

Launches are counted while its compiled module runs once: every call of a function whose generated
name marks a kernel of its own (`cpp_fused_…`, `triton_…`), not of an ATen operator.

Bytes are counted from what its scheduler hands to the code generator, by the rule that fusewright
uses for its own kernels: in one kernel each buffer counts once, for the elements that its accesses
reach (the product of the extents of the loops that an index mentions; of all loops where the index
was loaded from memory), and at most for the elements that it has. Buffers that live inside a kernel
count for nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

KERNEL_PREFIXES = ("cpp_fused", "triton_")


class PeerTraffic:
    """What was recorded while `recording` was open around a first call."""

    def __init__(self) -> None:
        self.bytes = 0
        self.generated_nodes = 0
        self.extern_calls = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what each graph consists of when its code is generated."""
        from torch._inductor.graph import GraphLowering

        original = GraphLowering.codegen

        def codegen(graph: Any) -> Any:
            result = original(graph)
            self._note(graph)
            return result

        with mock.patch.object(GraphLowering, "codegen", codegen):
            yield

    def _note(self, graph: Any) -> None:
        from torch._inductor import scheduler
        from torch._inductor.virtualized import V

        with V.set_graph_handler(graph):
            for node in graph.scheduler.nodes:
                if isinstance(node, scheduler.NopKernelSchedulerNode):
                    continue
                if isinstance(node, scheduler.ExternKernelSchedulerNode):
                    self.extern_calls += not _is_part_of_another(node)
                else:
                    self.generated_nodes += 1
                    self.bytes += _bytes_of(node, graph)


def _is_part_of_another(node: Any) -> bool:
    """Whether an extern node only picks one output of a call."""
    from torch._inductor.ir import MultiOutput

    return isinstance(node.node, MultiOutput)


def _bytes_of(node: Any, graph: Any) -> int:
    """Bytes that one generated kernel reads and writes."""
    written_here = {buffer.get_name() for part in node.get_nodes() for buffer in part.get_outputs()}
    reads: dict[str, set[Any]] = defaultdict(set)
    writes: dict[str, set[Any]] = defaultdict(set)
    for part in node.get_nodes():
        for dependency in part.read_writes.reads:
            if dependency.name not in written_here:
                reads[dependency.name].add(dependency)
        for dependency in part.read_writes.writes:
            if dependency.name not in graph.removed_buffers:
                writes[dependency.name].add(dependency)

    return sum(
        _bytes_reached(name, dependencies, graph)
        for accesses in (reads, writes)
        for name, dependencies in accesses.items()
    )


def _bytes_reached(name: str, dependencies: set[Any], graph: Any) -> int:
    """Bytes of buffer `name` that the accesses reach."""
    from torch._inductor.dependencies import MemoryDep

    buffer = graph.get_buffer(name)
    if buffer is None:
        return 0

    span = math.prod(_number(size) for size in buffer.get_size())
    reached = 0
    for dependency in dependencies:
        if not isinstance(dependency, MemoryDep):
            continue  # Only an order between kernels.
        mentioned = dependency.index.free_symbols
        counted = [
            _number(size)
            for variable, size in zip(dependency.var_names, dependency.size, strict=True)
            if dependency.is_indirect() or variable in mentioned
        ]
        reached += math.prod(counted)
    return min(span, reached) * buffer.get_dtype().itemsize


def _number(size: Any) -> int:
    """A size as a number: the hint of a symbolic one."""
    from torch._inductor.virtualized import V

    return int(V.graph.sizevars.optimization_hint(size, fallback=1))


def count_launches(call: Callable[[], object]) -> int:
    """Launches of generated kernels while `call` runs compiled code that has run before."""
    from torch._inductor.codecache import PyCodeCache

    launches = 0

    def counted(kernel: Any) -> Any:
        def launch(*arguments: Any, **keywords: Any) -> Any:
            nonlocal launches
            launches += 1
            return kernel(*arguments, **keywords)

        return launch

    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for module in PyCodeCache.modules:
        namespace = vars(module)
        for name, value in list(namespace.items()):
            if name.startswith(KERNEL_PREFIXES) and callable(value):
                replaced.append((namespace, name, value))
                namespace[name] = counted(value)
    try:
        call()
    finally:
        for namespace, name, value in replaced:
            namespace[name] = value
    return launches
