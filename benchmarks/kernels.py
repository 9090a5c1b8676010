"""Every generated kernel of the benchmark's models against the eager operators that it replaces.

    python -m benchmarks.kernels [--models NAME …] [--json FILE]

How it is measured. Each model is captured, compiled stage by stage and called once with its real
inputs. Every ATen node is given its own name as its place in the source, so that the origins which
the compiler carries beside each fused group say exactly which nodes the group computes. The
*kernel* column is one launch on copies of the tensors of its first call, allocating what it writes
as the generated module would if no memory could be reused. The *eager* column runs the group's
nodes with eager ATen operators, in order, from one to the next, on the same inputs; views between
them are run too, since eager runs them. A node that several groups compute (recomputed because it
is cheap) counts in the first one only. Both columns take turns on the same threads; the figures
are medians. Equal kernels are measured once.

The exit status is 1 if a kernel is slower than what it replaces by more than `TOLERANCE`.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import fx

import fusewright
from benchmarks.compare import environment
from benchmarks.models import MODELS, Inputs, build
from benchmarks.sampling import take_turns
from fusewright.aot import AtenGraph, trace_inference, with_results
from fusewright.context import CompileContext
from fusewright.errors import Location
from fusewright.ir.group import Group, Schedule
from fusewright.ir.kernel import Kernel
from fusewright.kernels import KernelSet, define_kernels
from fusewright.lower import calling_order, lower
from fusewright.lower.families import VIEWS
from fusewright.runtime.loader import LoadedModule, load_module
from fusewright.schedule import schedule as fuse
from fusewright.wrapper import emit_python, generate_lines, plan_memory

SECONDS = 1.0
"""Time for the turns of one kernel and its eager operators."""

TOLERANCE = 0.03
"""Part of a kernel's time that is taken for noise."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One distinct kernel of one model; times in seconds."""

    model: str
    kernel: str
    uses: int
    operators: tuple[str, ...]
    """The eager operators that it replaces, views left out."""

    kernel_time: float
    eager_time: float

    @property
    def ratio(self) -> float:
        """How many times as fast as eager the kernel is."""
        return self.eager_time / self.kernel_time


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModel:
    """A model's stages, kept apart, and the inputs of one call."""

    graph: AtenGraph
    schedule: Schedule
    kernels: KernelSet
    module: LoadedModule
    inputs: tuple[Any, ...]
    """Those of the ATen graph, by placeholder."""

    arguments: dict[str, tuple[Any, ...]]
    """Those of each kernel's first call, copied."""


# Compiling ----------------------------------------------------------------------------------------


def compile_model(name: str) -> CompiledModel:
    """Capture and compile a model of the benchmark, and call it once; under `torch.no_grad`."""
    module, inputs = build(name)
    captured, arguments = capture(module, inputs, own=MODELS[name].own_front_end)
    return compile_captured(captured, arguments)


def capture(
    module: torch.nn.Module, inputs: Inputs, *, own: bool
) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """The one graph of a model, and the inputs with which the front end calls it."""
    taken: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def backend(graph_module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            taken.append((graph_module, arguments))
            return graph_module.forward(*arguments)

        return call

    compiler = fusewright.compile if own else torch.compile
    compiler(module, backend=backend, fullgraph=True)(**inputs)
    (only,) = taken
    return only


def compile_captured(captured: fx.GraphModule, arguments: Sequence[Any]) -> CompiledModel:
    """The stages of `fusewright.pipeline`, with the nodes' names as their origins."""
    context = CompileContext()
    graph = trace_inference(captured, arguments, context)
    for node in graph.graph.nodes:
        node.meta["location"] = Location(node.name, 1, "")
    program = lower(graph, context)
    schedule = fuse(program, context)
    kernels = define_kernels(schedule, context)
    lines = generate_lines(schedule, kernels.definitions, kernels.launches)
    lines = plan_memory(lines, program.hints)
    module = load_module(emit_python(program.name, lines), graph.constants)
    call = calling_order(graph.placeholders, program).around(module.call)

    inputs: list[Any] = []

    def remembering(given: list[Any]) -> Any:
        inputs.extend(given)
        return call(given)

    with recorded_launches(module, kernels) as launches:
        with_results(graph, remembering)(list(arguments))
    return CompiledModel(
        graph=graph,
        schedule=schedule,
        kernels=kernels,
        module=module,
        inputs=tuple(inputs),
        arguments=launches,
    )


@contextmanager
def recorded_launches(
    module: LoadedModule, kernels: KernelSet
) -> Iterator[dict[str, tuple[Any, ...]]]:
    """Meanwhile, keep copies of the arguments of each kernel's first call in `module`."""
    namespace = module.call.__globals__  # type: ignore[attr-defined]
    originals = {kernel.name: namespace[kernel.name] for kernel in kernels.definitions}
    found: dict[str, tuple[Any, ...]] = {}

    def recorder(name: str) -> Callable[..., None]:
        def launch(*arguments: Any) -> None:
            if name not in found:
                found[name] = tuple(map(copied, arguments))
            originals[name](*arguments)

        return launch

    namespace.update({name: recorder(name) for name in originals})
    try:
        yield found
    finally:
        namespace.update(originals)


def copied(value: Any) -> Any:
    """A tensor in memory of its own, with the same strides; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return made.copy_(value)


# What a kernel replaces ---------------------------------------------------------------------------


def eager_values(model: CompiledModel) -> dict[fx.Node, Any]:
    """The value of every node, by eager operators."""
    values: dict[fx.Node, Any] = dict(zip(model.graph.placeholders, model.inputs, strict=True))
    for node in model.graph.graph.nodes:
        if node.op == "get_attr":
            values[node] = model.graph.constants[str(node.target)]
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values


def is_view(node: fx.Node) -> bool:
    """Whether an operator computes nothing."""
    return node.target is operator.getitem or str(node.target) in VIEWS


def replaced_nodes(graph: fx.Graph, names: frozenset[str]) -> list[fx.Node]:
    """The nodes called `names` and the views between them, in order."""
    reached: list[fx.Node] = []
    for node in graph.nodes:
        follows = is_view(node) and any(one in reached for one in node.all_input_nodes)
        if node.op == "call_function" and (node.name in names or follows):
            reached.append(node)
    kept: set[fx.Node] = set()
    for node in reversed(reached):
        if not is_view(node) or any(user in kept for user in node.users):
            kept.add(node)
    return [node for node in reached if node in kept]


def eager_function(
    nodes: Sequence[fx.Node], values: dict[fx.Node, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`nodes` as a function that runs eager operators, and its arguments."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    outside = dict.fromkeys(
        source for node in nodes for source in node.all_input_nodes if source not in nodes
    )
    for source in outside:
        made[source] = graph.placeholder(source.name)
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[n] for n in nodes if not any(user in made for user in n.users)))
    return fx.GraphModule({}, graph).forward, tuple(values[source] for source in outside)


# Measuring ----------------------------------------------------------------------------------------


def measure(name: str, model: CompiledModel) -> Iterator[KernelRow]:
    """A row for each distinct kernel."""
    values = eager_values(model)
    uses = Counter(launch.kernel for launch in model.kernels.launches.values())
    definitions = {kernel.name: kernel for kernel in model.kernels.definitions}
    claimed: set[str] = set()
    met: set[str] = set()
    for position, step in enumerate(model.schedule.works):
        if not isinstance(step, Group):
            continue
        names = frozenset(origin.file for origin in step.origins) - claimed
        claimed |= names
        kernel = definitions[model.kernels.launches[position].kernel]
        if kernel.name in met:
            continue
        met.add(kernel.name)
        nodes = replaced_nodes(model.graph.graph, names)
        function, arguments = eager_function(nodes, values)
        launch = launcher(model, kernel)
        samples = take_turns({"kernel": launch, "eager": partial(function, *arguments)}, SECONDS)
        yield KernelRow(
            model=name,
            kernel=kernel.name,
            uses=uses[kernel.name],
            operators=tuple(str(node.target) for node in nodes if not is_view(node)),
            kernel_time=statistics.median(samples["kernel"]),
            eager_time=statistics.median(samples["eager"]),
        )


def launcher(model: CompiledModel, kernel: Kernel) -> Callable[[], None]:
    """One launch of a kernel on its recorded arguments, writing to fresh memory."""
    run = model.module.call.__globals__[kernel.name]  # type: ignore[attr-defined]
    arguments = list(model.arguments[kernel.name])
    fresh = [
        (place, tensor.shape, tensor.stride(), tensor.dtype)
        for place, (argument, tensor) in enumerate(zip(kernel.arguments, arguments, strict=False))
        if argument.name.startswith("out")
    ]

    def launch() -> None:
        for place, size, stride, dtype in fresh:
            arguments[place] = torch.empty_strided(size, stride, dtype=dtype)
        run(*arguments)
        for place, *_ in fresh:
            arguments[place] = None  # Freed before the next call allocates, as eager's results are.

    return launch


# Reporting ----------------------------------------------------------------------------------------


def table(rows: Sequence[KernelRow]) -> Table:
    """The rows, slowest of their kind first within a model."""
    shown = Table(title="generated kernels against the eager operators they replace")
    for heading in ("model", "kernel"):
        shown.add_column(heading)
    for heading in ("uses", "µs", "eager µs", "ratio"):
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(
            row.model,
            row.kernel,
            str(row.uses),
            f"{row.kernel_time * 1e6:.1f}",
            f"{row.eager_time * 1e6:.1f}",
            f"{row.ratio:.2f}",
            style="red" if row.ratio < 1 - TOLERANCE else None,
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the models that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)

    console = Console()
    rows: list[KernelRow] = []
    for model in options.models:
        with console.status(model), torch.no_grad():
            rows += measure(model, compile_model(model))
    console.print(table(rows))
    if options.json is not None:
        report = {
            "environment": environment(),
            "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(row.ratio < 1 - TOLERANCE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
