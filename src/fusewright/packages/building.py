"""`aot_compile`: a call of a program, compiled ahead of time to a package."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from fusewright import __version__
from fusewright.aot import AtenGraph, freeze, trace_inference, weights_of
from fusewright.config import Options
from fusewright.context import COLLECTOR_PAUSE, CompileContext
from fusewright.errors import Location, PackageRefused, Unsupported
from fusewright.exported import names_of_tensors
from fusewright.generation import GeneratedCode, generate_code
from fusewright.ir.forms import blocks_of, print_lines
from fusewright.ir.kernel import Kernel, TritonFacts
from fusewright.ir.lines import CallProgram, CallUserTriton, DefineDevice, DefineKernel, Line
from fusewright.operators.layouts import may_lie_anyhow
from fusewright.packages.calls import EntryPoint, PackagedCall
from fusewright.packages.constants import constant_row
from fusewright.packages.container import Section, write_package
from fusewright.packages.cpp_source import write_source
from fusewright.packages.frozen_values import FrozenValues
from fusewright.packages.gpu_kernels import section_of
from fusewright.packages.processors import LEVELS, best_level, machine_name
from fusewright.packages.standalone import standalone_section
from fusewright.packages.standalone_plan import NotStandalone
from fusewright.packages.structure import CannotDescribe
from fusewright.packages.tensors import memory_of, tensor_row
from fusewright.runtime import compile_pool
from fusewright.runtime.cuda import (
    LETTERS,
    CudaKernel,
    GpuKernelFailed,
    TritonSource,
    widths_of,
)
from fusewright.runtime.cuda_driver import architecture_of
from fusewright.runtime.llvm_engine import object_code
from fusewright.runtime.native_plan import NativePlan
from fusewright.runtime.targets import source_of
from fusewright.torch_version import version_of
from fusewright.wrapper import pack_native


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
    cpp: str | os.PathLike[str] = "",
) -> Path:
    """Compile a call `target(*args, **kwargs)` of a function or module to a file, which
    `fusewright.load` runs without the compiler; gives its path.

    The package holds for other tensors of the same types and sizes, and for any size where
    `dynamic_shapes` says so, as `compile` takes it; all else is as it was in this call. It computes
    no gradients. `entry_points`: further functions by name, say another method of the module, which
    share its weights. `store_weights`: False leaves them out; they are given when it is loaded.
    `options`: as those of `compile`; of these, freeze stores what is computed of weights alone in
    place of the weights, and tune times kernels on this machine.
    `processors`: levels of processors to compile for, of avx512, avx2 and scalar, and kinds of GPUs
    such as sm_90; this machine's by default. `key`: signs the package. `cpp`: a folder to which
    readable C++ of each entry point is written, with its kernels' object code; both are for the
    best of the processors.

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
    gpus: list[int] = []
    for name in chosen:
        if name[:3] == "sm_" and name[3:].isdecimal():
            gpus.append(int(name[3:]))
        elif name not in LEVELS:
            names = ", ".join(LEVELS)
            raise ValueError(f"processors are among {names}, and of GPUs sm_90, not {name!r}")
    if (options or {}).get("freeze") and not store_weights:
        raise ValueError(
            "a frozen package stores what it has computed of its weights: leave out "
            "store_weights=False, or options={'freeze': True}"
        )
    first = EntryPoint(target, args, kwargs, dynamic_shapes)
    levels = [name for name in LEVELS if name in chosen] or [best_level()]
    builder = _Builder(dict(options or {}), levels, sorted(gpus), Path(cpp) if cpp else None)
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

    def __init__(
        self, options: dict[str, Any], levels: list[str], gpus: list[int], cpp: Path | None
    ) -> None:
        self.sections: list[tuple[str, Section]] = []
        self._options = {"verify": False, **options}
        self._levels = levels
        self._cpp = cpp
        """Where C++ is written."""

        self._architectures = gpus
        """Kinds of GPUs to compile for; filled in with this machine's where there are none."""

        self._entries: dict[str, Any] = {}
        self._plans: dict[tuple[str, str], dict[str, Any]] = {}
        """By entry point and level, its plan as data."""

        self._weights: dict[str, torch.Tensor] = {}
        self._frozen: dict[str, None] = {}
        """Names of weights of which values were computed in their place."""

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
            "weights": [tensor_row(name, weight) for name, weight in self._weights.items()],
            "frozen": [*self._frozen],
            "entries": self._entries,
        }

    def _gpus_named(self) -> list[str]:
        """The GPUs that arguments, weights and plans name."""
        rows = [
            row for entry in self._entries.values() for row in (*entry["leaves"], *entry["frozen"])
        ]
        named = [str(weight.device) for weight in self._weights.values()]
        named += [row["device"] for row in rows]
        return sorted({*named, *self._devices} - {"cpu", "meta"})

    def stored_weights(self) -> list[tuple[str, Section]]:
        """Sections of the weights."""
        return [(f"weight.{name}", memory_of(weight)) for name, weight in self._weights.items()]

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
            except NotStandalone as reason:
                self._entries[name]["needs_python"] = str(reason)
                continue
            sections.append((f"{name}.{level}.standalone", section))
        return sections

    def add(self, name: str, entry: EntryPoint) -> None:
        """Compile an entry point."""
        call = PackagedCall(entry, self._options)
        self._names.update(
            (number, label) for number, label in names_of_tensors(call.target).items()
            if number not in self._names
        )  # fmt: skip
        graph: AtenGraph | None = None
        frozen: FrozenValues | None = None
        best: tuple[GeneratedCode, bytes] | None = None
        for level in self._levels:
            own = {"kernel_target": level, "multi_kernel": "off"}  # A package times nothing.
            options = Options.from_user({**self._options, **own})
            context = CompileContext(options=options)
            if graph is None:
                graph = trace_inference(call.capture.graph_module, call.capture.inputs, context)
                _refuse_effects(graph, call.place)
                frozen = self._frozen_values(name, call, graph) if options.freeze else None
            rest = graph if frozen is None else frozen.graph
            code = generate_code(rest, context, is_whole=True)
            objects = self._add_code(name, level, code, call.place)
            best = best or (code, objects)
        assert graph is not None and best is not None
        call.assume_no_more()
        described = call.described(graph, self._weight)
        described = described if frozen is None else frozen.added_to(described)
        self._entries[name] = {**described, "constants": self._constants(name, code)}
        inputs = [place for entry in self._entries.values() for place in entry["inputs"]]
        read = {source for kind, source in inputs if kind == "weight"}
        self._weights = {name: self._weights[name] for name in self._weights if name in read}
        if self._cpp is not None:
            write_source(self._cpp, name, *best, described, call.place)

    def _frozen_values(
        self, entry: str, call: PackagedCall, graph: AtenGraph
    ) -> FrozenValues | None:
        """What the graph computes of weights alone, which it does no more then."""
        weights = weights_of(call.capture.graph_module, call.capture.inputs)
        frozen = freeze(graph, weights, layouts_are_free=may_lie_anyhow(graph.graph))
        if frozen is None:
            return None
        values = FrozenValues.of(frozen, call.tensors)
        self.sections += values.sections(entry)
        for position in frozen.positions:
            tensor = call.tensors[position]
            assert tensor is not None
            self._frozen[self._name_of(tensor)] = None
        return values

    def _weight(self, tensor: torch.Tensor) -> str:
        """The name of a tensor that is no argument, which is kept."""
        name = self._name_of(tensor)
        self._weights[name] = tensor.detach()
        return name

    def _name_of(self, tensor: torch.Tensor) -> str:
        return self._names.setdefault(id(tensor), f"tensor_{len(self._names)}")

    def _constants(self, name: str, code: GeneratedCode) -> list[dict[str, Any]]:
        rows = []
        for constant, tensor in code.constants.items():
            rows.append(tensor_row(constant, tensor))
            self.sections.append((f"{name}.constant.{constant}", memory_of(tensor)))
        return rows

    def _add_code(self, entry: str, level: str, code: GeneratedCode, place: Location) -> bytes:
        """The plan and machine code of an entry point, for one level of processors; gives the
        machine code.
        """
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
        data = {**rows, "kernels": [*map(_kernel_row, kernels)]}
        name = f"{entry}.{level}"
        text = json.dumps(data, separators=(",", ":"))
        self._plans[entry, level] = json.loads(text)
        self.sections.append((f"{name}.plan", text.encode()))
        machine_code = object_code(kernels, level)
        if machine_code:
            self.sections.append((f"{name}.code", machine_code))
        for kernel in kernels:
            source = source_of(kernel)
            if isinstance(source, TritonSource):
                self._gpu_kernels[entry, kernel.name] = source
        self.sections.append((f"{name}.lines", print_lines(code.lines).encode()))
        return machine_code


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
        own = {"letters": letters, "widths": [*widths_of(tensors)]}
        source = source_of(kernel)
        assert isinstance(source, TritonSource)
        return {**row, **own, "first_values": source.first_values.hex()}
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
