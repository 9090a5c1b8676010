"""`aot_compile`: a call of a program, compiled ahead of time to a package."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from fusewright import __version__
from fusewright.aot import AtenGraph, specs, trace_inference
from fusewright.capture import Capture, NotCaptured, capture_call
from fusewright.capture.dynamic_shapes import DynamicShapes
from fusewright.capture.guards import ShapeGuard
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.sources import (
    AttributeSource,
    DictItemSource,
    ExtentSource,
    ItemSource,
    LocalSource,
    Source,
)
from fusewright.capture.trace import CALL_MODULE, root_call
from fusewright.compiled import original_of
from fusewright.config import Options
from fusewright.context import COLLECTOR_PAUSE, CompileContext
from fusewright.errors import Location, PackageRefused, Unsupported
from fusewright.exported import names_of_tensors, place_of, result_of
from fusewright.ir.forms import (
    blocks_of,
    print_lines,
)
from fusewright.ir.index import Atom, Index, Symbol
from fusewright.ir.kernel import Kernel, TritonFacts
from fusewright.ir.lines import CallProgram, CallUserTriton, DefineDevice, DefineKernel, Line
from fusewright.ir.relations import Relation
from fusewright.packages.constants import constant_row
from fusewright.packages.container import Section, write_package
from fusewright.packages.gpu_kernels import architecture_of, section_of
from fusewright.packages.processors import LEVELS, best_level, machine_name
from fusewright.packages.sizes import Number
from fusewright.packages.standalone import NotStandalone, standalone_section
from fusewright.packages.structure import CannotDescribe, Description, describe, leaves_of
from fusewright.pipeline import GeneratedCode, generate_code
from fusewright.runtime import compile_pool
from fusewright.runtime.cuda import (
    LETTERS,
    CudaKernel,
    GpuKernelFailed,
    TritonSource,
    widths_of,
)
from fusewright.runtime.llvm_engine import MachineCodeCompiler, cpu_target
from fusewright.runtime.native_plan import NativePlan
from fusewright.runtime.targets import source_of
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat.trees import flatten_tree, map_tree
from fusewright.torch_version import version_of
from fusewright.wrapper import pack_native

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class EntryPoint(NamedTuple):
    """A further function of a package, and a call of it."""

    target: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None


def aot_compile(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    path: str | os.PathLike[str] = "",
    *,
    dynamic_shapes: Any = None,
    entry_points: Mapping[str, EntryPoint] | None = None,
    store_weights: bool = True,
    processors: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    key: bytes | str = b"",
) -> Path:
    """Compile a call `target(*args, **kwargs)` of a function or module to a file, which
    `fusewright.load` runs without the compiler; gives its path.

    The package holds for other tensors of the same types and sizes, and for any size where
    `dynamic_shapes` says so, as `compile` takes it; all else is as it was in this call. It computes
    no gradients. `entry_points`: further functions by name, say another method of the module, which
    share its weights. `store_weights`: False leaves them out; they are given when it is loaded.
    `processors`: levels of processors to compile for, of avx512, avx2 and scalar, and kinds of GPUs
    such as sm_90; this machine's by default. `key`: signs the package.

    Raises: `Unsupported`, which names the line, for what would break the graph, and for a program
    that trains, changes objects or returns what no package holds; `WrongShape`
    where `dynamic_shapes` is wrong; PackageRefused on another architecture than x86-64; OSError
    where the file cannot be written.
    """
    if not path:
        raise TypeError("aot_compile writes a file: give its path")
    if machine_name() != "x86_64":
        raise PackageRefused(
            str(path), f"packages are made on x86-64, and this is {machine_name()}"
        )
    chosen = processors or (best_level(),)
    gpus = [int(name[3:]) for name in chosen if name[:3] == "sm_" and name[3:].isdecimal()]
    for name in chosen:
        if name not in LEVELS and not (name[:3] == "sm_" and name[3:].isdecimal()):
            names = ", ".join(LEVELS)
            raise ValueError(f"processors are among {names}, and of GPUs sm_90, not {name!r}")
    first = EntryPoint(target, args, kwargs, dynamic_shapes)
    levels = [name for name in LEVELS if name in chosen] or [best_level()]
    builder = _Builder(dict(options or {}), levels, sorted(gpus))
    with COLLECTOR_PAUSE, torch.no_grad():
        for name, entry in {"forward": first, **(entry_points or {})}.items():
            builder.add(name, entry)
    try:
        gpu_sections = builder.gpu_sections()
    except GpuKernelFailed as failure:
        raise PackageRefused(str(path), str(failure)) from failure
    sections = builder.sections + gpu_sections + builder.standalone_sections()
    sections += builder.stored_weights() if store_weights else []
    secret = key.encode() if isinstance(key, str) else key
    write_package(Path(path), builder.manifest(), sections, secret)
    return Path(path)


class _Builder:
    """Collects the parts of a package."""

    def __init__(self, options: dict[str, Any], levels: list[str], gpus: list[int]) -> None:
        self.sections: list[tuple[str, Section]] = []
        self._options = {"verify": False, **options}
        self._levels = levels
        self._architectures = gpus
        """Kinds of GPUs to compile for; filled in with this machine's where there are none."""

        self._entries: dict[str, Any] = {}
        self._plans: dict[tuple[str, str], dict[str, Any]] = {}
        """By entry point and level, its plan as data."""

        self._weights: dict[str, torch.Tensor] = {}
        self._gpu_kernels: dict[tuple[str, str], TritonSource] = {}
        """By entry point and name, the kernels for GPUs."""

        self._devices: dict[str, None] = {}
        """The GPUs that plans name, in order."""

        self._names: dict[int, str] = {}
        """Names of weights, by the identity of the tensor."""

    def manifest(self) -> dict[str, Any]:
        """All that the package says of itself."""
        return {
            "fusewright": __version__,
            "torch": ".".join(map(str, version_of(torch.__version__))),
            "machine": machine_name(),
            "gpus": self._architectures,
            "devices": self._gpus_named(),
            "levels": [{"name": name, "features": LEVELS[name]} for name in self._levels],
            "weights": [_tensor_row(name, weight) for name, weight in self._weights.items()],
            "entries": self._entries,
        }

    def _gpus_named(self) -> list[str]:
        """The GPUs that arguments, weights and plans name."""
        leaves = [leaf for entry in self._entries.values() for leaf in entry["leaves"]]
        named = [str(weight.device) for weight in self._weights.values()]
        named += [leaf["device"] for leaf in leaves]
        return sorted({*named, *self._devices} - {"cpu", "meta"})

    def stored_weights(self) -> list[tuple[str, Section]]:
        """Sections of the weights."""
        return [(f"weight.{name}", _memory_of(weight)) for name, weight in self._weights.items()]

    def gpu_sections(self) -> list[tuple[str, Section]]:
        """Machine code of the kernels for GPUs. Raises: GpuKernelFailed."""
        if not self._gpu_kernels:
            return []
        own = {architecture_of(torch.device(device).index or 0) for device in self._devices}
        self._architectures = self._architectures or sorted(own)
        requests = [
            (CudaKernel(name, source), entry, architecture, aligned)
            for (entry, name), source in self._gpu_kernels.items()
            for architecture in self._architectures
            for aligned in (True, False)
        ]

        def section(request: tuple[CudaKernel, str, int, bool]) -> tuple[str, Section]:
            kernel, entry, architecture, aligned = request
            cubin = kernel.machine_code(architecture, aligned)
            return section_of(entry, kernel.name, architecture, aligned), cubin.to_bytes()

        workers = max(1, min(compile_pool.WORKERS, len(requests)))
        with ThreadPoolExecutor(workers, thread_name_prefix="fusewright-triton") as pool:
            return [*pool.map(section, requests)]

    def standalone_sections(self) -> list[tuple[str, Section]]:
        """The sections that run entry points without Python, where nothing of them needs it."""
        manifest = json.loads(json.dumps(self.manifest()))
        sections: list[tuple[str, Section]] = []
        for (name, level), plan in self._plans.items():
            entry = manifest["entries"][name]
            try:
                section = standalone_section(name, level, LEVELS[level], manifest, entry, plan)
            except NotStandalone:
                continue
            sections.append((f"{name}.{level}.standalone", section))
        return sections

    def add(self, name: str, entry: EntryPoint) -> None:
        """Compile an entry point."""
        call = _Call(entry, self._options)
        self._names.update(
            (number, label) for number, label in names_of_tensors(call.target).items()
            if number not in self._names
        )  # fmt: skip
        graph: AtenGraph | None = None
        for level in self._levels:
            own = {"kernel_target": level, "multi_kernel": "off"}  # A package times nothing.
            options = Options.from_user({**self._options, **own})
            context = CompileContext(options=options)
            if graph is None:
                graph = trace_inference(call.capture.graph_module, call.capture.inputs, context)
                _refuse_effects(graph, call.place)
            code = generate_code(graph, context, is_whole=True)
            self._add_code(name, level, code, call.place)
        assert graph is not None
        call.assume_no_more()
        described = call.described(graph, self._weight)
        self._entries[name] = {**described, "constants": self._constants(name, code)}

    def _weight(self, tensor: torch.Tensor) -> str:
        """The name of a tensor that is no argument."""
        name = self._names.setdefault(id(tensor), f"tensor_{len(self._weights)}")
        self._weights[name] = tensor.detach()
        return name

    def _constants(self, name: str, code: GeneratedCode) -> list[dict[str, Any]]:
        rows = []
        for constant, tensor in code.constants.items():
            rows.append(_tensor_row(constant, tensor))
            self.sections.append((f"{name}.constant.{constant}", _memory_of(tensor)))
        return rows

    def _add_code(self, entry: str, level: str, code: GeneratedCode, place: Location) -> None:
        """The plan and machine code of an entry point, for one level of processors."""
        emitted = code.emitted
        plan = pack_native(code.lines, emitted.places, code.order, emitted.places_of_blocks)
        _refuse_lines(code.lines, place)
        kernels = [line.kernel for line in code.lines if isinstance(line, DefineKernel)]
        if any(kernel.language not in ("cpu", "triton") for kernel in kernels):
            what = "a package holds kernels for the CPU and for NVIDIA's GPUs alone"
            raise Unsupported(what, place)
        devices = {line.slot: line.device for line in code.lines if isinstance(line, DefineDevice)}
        self._devices.update(dict.fromkeys(devices.values()))
        try:
            rows = _plan_rows(plan, devices)
        except CannotDescribe as error:
            raise Unsupported(f"{error} cannot be packaged", place) from None
        data = {
            **rows,
            "kernels": [*map(_kernel_row, kernels)],
        }
        name = f"{entry}.{level}"
        text = json.dumps(data, separators=(",", ":"))
        self._plans[entry, level] = json.loads(text)
        self.sections.append((f"{name}.plan", text.encode()))
        sources = {kernel.name: kernel.source for kernel in kernels if kernel.language == "cpu"}
        if sources:
            machine_code = MachineCodeCompiler(cpu_target(level)).object_code(sources)
            self.sections.append((f"{name}.code", machine_code))
        for kernel in kernels:
            source = source_of(kernel)
            if isinstance(source, TritonSource):
                self._gpu_kernels[entry, kernel.name] = source
        self.sections.append((f"{name}.lines", print_lines(code.lines).encode()))


class _Call:
    """A call that was captured whole."""

    def __init__(self, entry: EntryPoint, options: dict[str, Any]) -> None:
        self.target = original_of(entry.target)
        given = tuple(entry.args), dict(entry.kwargs or {})
        self._args, self._kwargs = map_tree(_own_tensor, given)
        function, arguments, keywords = root_call(self.target, self._args, self._kwargs)
        self.place = place_of(self.target, function)
        self._refuse_training(given)
        bound = inspect.signature(function).bind(*arguments, **keywords)
        bound.apply_defaults()
        self._locals = bound.arguments
        self.capture = self._captured(function, Options.from_user(options), entry.dynamic_shapes)
        self._shapes: ShapeGuard | None = None
        self._tensors = self._tensors_read()
        self._fakes = {id(value.object): value.fake for value in self.capture.machine.inputs}
        """By the identity of a tensor, what stands for it in the graph: its sizes are symbols."""

        self._parameters: list[tuple[inspect.Parameter, Description | None]] = []

    def _refuse_training(self, given: Any) -> None:
        module = getattr(self.target, "__self__", self.target)
        if isinstance(module, torch.nn.Module) and module.training:
            what = "a package does not train, and the module is in training mode"
            raise Unsupported(what, self.place, "call eval() of it first")
        leaves, _ = flatten_tree(given)
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
            what = "a package computes no gradients, and an argument requires them"
            raise Unsupported(what, self.place, "detach it")

    def _captured(
        self, function: Callable[..., Any], options: Options, dynamic_shapes: Any
    ) -> Capture:
        history = SizeHistory(False if dynamic_shapes is None else None, options.of_data)
        if dynamic_shapes is not None:
            is_module = function is CALL_MODULE
            module = self.target
            described = module.forward if isinstance(module, torch.nn.Module) else module
            history.dynamic_shapes = DynamicShapes.of(
                dynamic_shapes, described, is_module=is_module
            )
        try:
            capture = capture_call(function, self._locals, history=history)  # type: ignore[arg-type]
        except NotCaptured as failure:
            error = failure.error or Unsupported(f"the call raises {failure.raised}", self.place)
            raise (error if error.location is not None else error.at(self.place)) from None
        if capture.writes or capture.calls:
            what = "the call changes objects or modes of torch, which a package does not"
            raise Unsupported(what, self.place, "return what it makes instead")
        return capture

    def _tensors_read(self) -> list[torch.Tensor | None]:
        """The tensors that the graph is given in this call; None for sizes."""
        tensors = iter(self.capture.machine.inputs)
        return [
            None if isinstance(example, torch.SymInt) else next(tensors).object
            for example in self.capture.inputs
        ]

    def assume_no_more(self) -> None:
        """Take what was assumed of sizes so far, when the graph has been compiled."""
        self._shapes = self.capture.machine.sizes.close()
        self._parameters = self._described_parameters()

    # Arguments ------------------------------------------------------------------------------------

    def _described_parameters(self) -> list[tuple[inspect.Parameter, Description | None]]:
        """Each parameter of the target with the structure of its argument; None for one that no
        package holds, which may not be given later.
        """
        module = self.target
        described = module.forward if isinstance(module, torch.nn.Module) else module
        signature = inspect.signature(described)
        bound = signature.bind(*self._args, **self._kwargs)
        passed = set(bound.arguments)
        bound.apply_defaults()
        self.leaves: list[torch.Tensor] = []
        parameters: list[tuple[inspect.Parameter, Description | None]] = []
        for name, parameter in signature.parameters.items():
            value = bound.arguments[name]
            try:
                structure: Description | None = describe(value, self._leaf, name)
            except CannotDescribe as error:
                if name in passed:
                    what = f"argument {error}, which no package holds"
                    raise Unsupported(what, self.place, "pass tensors and constants") from None
                structure = None
            parameters.append((parameter, structure))
        return parameters

    def _leaf(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        if any(value is leaf for leaf in self.leaves):
            what = "one tensor stands at two places among the arguments"
            raise Unsupported(what, self.place, "pass two, or pass it once")
        self.leaves.append(value)
        return len(self.leaves) - 1

    def _object(self, source: Source) -> Any:
        """The object at a place when the call began."""
        match source:
            case LocalSource(name=name):
                return self._locals[name]
            case ItemSource(origin=origin, index=key) | DictItemSource(origin=origin, key=key):
                return self._object(origin)[key]
            case AttributeSource(origin=origin, name=name):
                return getattr(self._object(origin), name)
        raise Unsupported(f"a size is read from {source}, which is no argument", self.place)

    def _number_of(self, value: Any) -> int:
        """The number of the leaf that an object is."""
        for number, leaf in enumerate(self.leaves):
            if leaf is value:
                return number
        raise Unsupported("a size is read from what is no argument", self.place)

    # Description ----------------------------------------------------------------------------------

    def described(self, graph: AtenGraph, weight: Callable[[Any], str]) -> dict[str, Any]:
        """The entry point as its manifest has it."""
        inputs = self._inputs(weight)
        return {
            "parameters": [
                {"name": parameter.name, "kind": parameter.kind.name, "structure": structure}
                for parameter, structure in self._parameters
            ],
            "leaves": [self._leaf_row(leaf) for leaf in self.leaves],
            "inputs": inputs,
            "sizes": self._sizes(),
            **self._results(graph, inputs),
        }

    def _inputs(self, weight: Callable[[Any], str]) -> list[list[Any]]:
        """The inputs of the plan, in order: a weight, an argument's leaf, or a size by symbol."""
        inputs: list[list[Any]] = []
        positions = {id(leaf): number for number, leaf in enumerate(self.leaves)}
        for example, tensor in zip(self.capture.inputs, self._tensors, strict=True):
            if tensor is None:
                (symbol,) = index_of(example).free()
                inputs.append(["number", symbol.name])
            elif id(tensor) in positions:
                inputs.append(["leaf", positions[id(tensor)]])
            else:
                inputs.append(["weight", weight(tensor)])
        return inputs

    def _leaf_row(self, leaf: torch.Tensor) -> dict[str, Any]:
        open_dims: set[int] = set()
        open_strides: set[int] = set()
        for reading in self._shapes.readings if self._shapes else ():
            match reading.source:
                case ExtentSource(origin=origin, dim=dim, is_stride=is_stride):
                    if self._object(origin) is leaf:
                        (open_strides if is_stride else open_dims).add(dim)
        size = [None if dim in open_dims else n for dim, n in enumerate(leaf.shape)]
        stride = [None if dim in open_strides or open_dims else n
                  for dim, n in enumerate(leaf.stride())]  # fmt: skip
        return {
            "dtype": str(leaf.dtype).removeprefix("torch."),
            "device": str(leaf.device),
            "size": size,
            "stride": stride,
            "is_contiguous": leaf.is_contiguous(),
        }

    def _sizes(self) -> dict[str, Any] | None:
        if self._shapes is None:
            return None
        readings, places = [], {}
        names = dict(self._places())
        for reading in self._shapes.readings:
            extent, symbol = reading.source, reading.symbol.name
            if not isinstance(extent, ExtentSource):
                what = f"{extent} is an integer that varies, which a package does not take"
                raise Unsupported(what, self.place, "say nothing of it in dynamic_shapes")
            leaf = self._number_of(self._object(extent.origin))
            readings.append([symbol, leaf, extent.dim, extent.is_stride])
            kind = "stride" if extent.is_stride else "size"
            places[symbol] = f"{names[leaf]}.{kind}({extent.dim})"
        return {"readings": readings, "relations": [*self._relations(places)]}

    def _places(self) -> Iterator[tuple[int, str]]:
        for parameter, structure in self._parameters:
            if structure is not None:
                yield from leaves_of(structure, parameter.name)

    def _relations(self, places: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        assert self._shapes is not None
        for assumption in self._shapes.relations:
            relation = assumption.relation
            if not isinstance(relation, Relation):
                raise Unsupported("a number that varies is no integer", self.place)
            named = {s: s.renamed(places[s.name]).index for s in relation.free()}
            words = str(Relation(relation.kind, relation.difference.substitute(named)))
            yield {
                "kind": relation.kind.value,
                "difference": index_data(relation.difference),
                "words": words,
            }

    def _results(self, graph: AtenGraph, inputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """How each result of the graph is made, and the structure of what the call returns."""
        recipes = [self._recipe(spec, inputs) for spec in graph.results]
        outputs = self.capture.graph_module.graph.output_node()
        values = outputs.meta["val"]
        recipe_numbers = {id(value): number for number, value in enumerate(values)}

        def leaf(value: Any) -> int | None:
            """The recipe of a part of the result; constants have none."""
            if id(value) not in recipe_numbers:
                recipe = self._recipe_of_given(value, inputs)
                if recipe is None:
                    return None
                recipe_numbers[id(value)] = len(recipes)
                recipes.append(recipe)
            return recipe_numbers[id(value)]

        try:
            structure = describe(self._result(values), leaf, "the result")
        except CannotDescribe as error:
            what = f"{error}, which no package returns"
            raise Unsupported(what, self.place, "return tensors and constants") from None
        return {"results": recipes, "structure": structure, "writes": _writes(graph, inputs)}

    def _result(self, values: Sequence[Any]) -> Any:
        """The result of the call, with stand-ins for tensors, so that sizes are symbols in it."""
        args, kwargs = map_tree(self._stand_in, (self._args, self._kwargs))
        return result_of(self.capture, tuple(values), self.target, args, kwargs)

    def _stand_in(self, value: Any) -> Any:
        return self._fakes.get(id(value), value)

    def _recipe_of_given(self, value: Any, inputs: Sequence[Sequence[Any]]) -> list[Any] | None:
        """The recipe of a size, or of a tensor that the call was given."""
        if isinstance(value, torch.SymInt):
            return ["size", index_data(index_of(value))]
        for number, leaf in enumerate(self.leaves):
            if value is leaf or value is self._stand_in(leaf):
                return ["leaf", number]
        for position, (kind, _) in enumerate(inputs):
            if kind == "weight" and value is self._tensors[position]:
                return ["weight", position]
        return None

    def _recipe(self, spec: specs.ResultSpec, inputs: Sequence[Sequence[Any]]) -> list[Any]:
        match spec:
            case specs.FromGraph(position=position):
                return ["output", position]
            case specs.FromInput(index=index):
                kind, number = inputs[index]
                return ["leaf", number] if kind == "leaf" else ["weight", index]
            case specs.Repeated(index=index):
                return ["result", index]
            case specs.Detached(base=base):
                return self._recipe(base, inputs)
            case specs.KnownResult(value=value):
                return ["constant", describe(value, lambda part: None, "a result")]
            case specs.ViewOf(conjugate=False, negative=False):
                source = self._recipe(spec.base, inputs)
                size, stride = [*map(_extent, spec.size)], [*map(_extent, spec.stride)]
                dtype = str(spec.dtype).removeprefix("torch.")
                return ["view", source, size, stride, _extent(spec.offset), dtype]
        what = f"a result is made by {type(spec).__name__}, which no package does"
        raise Unsupported(what, self.place, "return a copy of it")


def _own_tensor(value: Any) -> Any:
    """A tensor of its own for each place among the arguments: a package is not made for one that
    stands at two of them, or is a weight as well.
    """
    return value.data if isinstance(value, torch.Tensor) else value


def _extent(number: int | specs.FromGraph) -> int | list[int]:
    """A number of a view; in a list, the position of the output that it is."""
    return [number.position] if isinstance(number, specs.FromGraph) else number


def _writes(graph: AtenGraph, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Tensors that the call was given and writes to, as a result's recipe names them; the output
    that is the new value; and whether autograd counts the write.
    """
    rows = []
    for output, index in enumerate(graph.mutated_inputs):
        kind, number = inputs[index]
        recipe = ["leaf", number] if kind == "leaf" else ["weight", index]
        rows.append([*recipe, output, index not in graph.unnoticed_inputs])
    return rows


def _refuse_effects(graph: AtenGraph, place: Location) -> None:
    """Raises: Unsupported, for a graph that does more than compute outputs and new values."""
    if graph.bases:
        what = "the call writes to memory that two of its tensors share"
        raise Unsupported(f"{what}, which a package does not", place, "pass copies")
    if graph.geometry_changes:
        what = "the call changes the size of a tensor that it was given"
        raise Unsupported(f"{what}, which a package does not", place, "return the new value")
    if graph.inputs_with_bits:
        raise Unsupported("an argument is a view of conjugates", place, "call resolve_conj()")


def _kernel_row(kernel: Kernel) -> dict[str, Any]:
    """A kernel as a plan has it."""
    row = {"name": kernel.name, "language": kernel.language, "tensors": len(kernel.arguments)}
    if isinstance(kernel.facts, TritonFacts):
        count = len(kernel.arguments)
        tensors, kinds = kernel.facts.types[:count], kernel.facts.types[count:]
        letters = "".join(LETTERS[kind] for kind in kinds)
        return {**row, "letters": letters, "widths": [*widths_of(tensors)]}
    return {**row, "sizes": len(kernel.sizes)}


def _plan_rows(plan: NativePlan, devices: Mapping[str, str]) -> dict[str, Any]:
    """A plan as data, with those of its blocks. Raises: CannotDescribe."""
    return {
        "inputs": plan.inputs,
        "slots": plan.slots,
        "numbers": plan.numbers,
        "constants": [constant_row(text, devices) for text in plan.constants],
        "operations": plan.operations,
        "blocks": {name: _plan_rows(block, devices) for name, block in plan.blocks.items()},
    }


def _refuse_lines(lines: Sequence[Line], place: Location) -> None:
    for line in lines:
        if isinstance(line, CallProgram):
            what = f"the call {line.name}, which runs as Python, of which packages hold none"
            raise Unsupported(what, place, "leave its gradient out of the packaged function")
        if isinstance(line, CallUserTriton):
            what = f"the Triton kernel {line.name}, which a package does not hold"
            raise Unsupported(what, place, "leave its launch out of the packaged function")
        for block in blocks_of(line):
            _refuse_lines(block.lines, place)


def _tensor_row(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        what = f"a package holds plain tensors on the CPU and GPUs, not {tensor.device}"
        raise PackageRefused(name, what)
    return {
        "name": name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": str(tensor.device),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def _memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return memoryview(b"")
    extents = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((n - 1) * stride for n, stride in extents)
    size = span * tensor.element_size()
    if tensor.device.type != "cpu":
        tensor = tensor.as_strided((span,), (1,)).cpu()
    memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
    memory._tensor = tensor  # type: ignore[attr-defined]  # keeps it
    return memoryview(memory).cast("B")


def index_data(index: Index) -> Number:
    """An index expression as data: a sum of products."""
    products = [["*", coefficient, *map(_atom_data, atoms)] for coefficient, atoms in index.terms]
    return ["+", index.constant, *products] if products else index.constant


def _atom_data(atom: Atom) -> Number:
    if isinstance(atom, Symbol):
        return atom.name
    return [atom.operator, index_data(atom.left), index_data(atom.right)]
