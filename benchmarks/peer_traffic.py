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
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

KERNEL_PREFIXES = ("cpp_fused", "triton_")


class PeerTraffic:
    """What was recorded while `recording` was open around a first call, of all its graphs."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        """The Python modules that were generated, one a graph."""

        self.bytes = 0
        self.generated_nodes = 0
        self.extern_calls = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what each graph consists of when its code is generated."""
        from torch._inductor.graph import GraphLowering

        original = GraphLowering.compile_to_module

        def compile_to_module(graph: Any) -> Any:
            self.modules.append(original(graph))
            self._note(graph)
            return self.modules[-1]

        with mock.patch.object(GraphLowering, "compile_to_module", compile_to_module):
            yield
        if not self.modules:
            raise RuntimeError("no code was generated: torch.compile found the graph in a cache")

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

    def count_launches(self, call: Callable[[], object]) -> int:
        """Launches of generated kernels while `call` runs the code that was generated."""
        launches = 0

        def counted(kernel: Any) -> Any:
            def launch(*arguments: Any, **keywords: Any) -> Any:
                nonlocal launches
                launches += 1
                return kernel(*arguments, **keywords)

            return launch

        with ExitStack() as patches:
            for module in self.modules:
                kernels = {
                    name: counted(value)
                    for name, value in vars(module).items()
                    if name.startswith(KERNEL_PREFIXES) and callable(value)
                }
                patches.enter_context(mock.patch.dict(vars(module), kernels))
            call()
        return launches


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

    reached: dict[Any, int] = {}
    for dependency in dependencies:
        if not isinstance(dependency, MemoryDep):
            continue  # Only an order between kernels.
        mentioned = dependency.index.free_symbols
        counted = [
            _number(size)
            for variable, size in zip(dependency.var_names, dependency.size, strict=True)
            if dependency.is_indirect() or variable in mentioned
        ]
        reached[_access(dependency)] = math.prod(counted)

    span = math.prod(_number(size) for size in buffer.get_size())
    return min(span, sum(reached.values())) * buffer.get_dtype().itemsize


def _access(dependency: Any) -> Any:
    """What tells two accesses apart: the index, but not which load of it is used.

    A value that is computed twice loads its index twice, under two names; so two gathers from one
    table through different indices count as one, in torch.compile's favour.
    """
    import sympy

    loaded = dependency.index.free_symbols - set(dependency.var_names)
    same = {symbol: sympy.Symbol("loaded") for symbol in loaded if dependency.is_indirect()}
    return dependency.index.subs(same), dependency.var_names, dependency.size


def _number(size: Any) -> int:
    """A size as a number: the hint of a symbolic one."""
    from torch._inductor.virtualized import V

    return int(V.graph.sizevars.optimization_hint(size, fallback=1))
