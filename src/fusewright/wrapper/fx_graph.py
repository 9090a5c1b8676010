"""The FX emitter: wrapper lines to a `GraphModule`, for whoever wants to run, read or change a
graph of fused kernels.

before                          after
------                          -----
x: f32[8] = input 0             %x = placeholder
y: f32[8] = allocate            %y = call_function[empty_strided]((8,), (1,), dtype=…, device=…)
launch k(x, y) units 8          %k = call_module[k](%x, %y, 8, 64)
free x                          (memory lives as long as a node that uses it)
return y                        return (%y,)

A launch returns nothing: it writes to its arguments, as calls of `out` variants do, so that the
order of the nodes is the order of the work. Modules of kernels hold the `Kernel` that they launch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.ir.dtype import DType
from fusewright.ir.index import Atom, Index, Symbol
from fusewright.ir.kernel import CpuFacts, Kernel
from fusewright.ir.lines import (
    Allocate,
    Arena,
    AssertLayout,
    CallChoice,
    CallExtern,
    CallExternOut,
    CallKernel,
    CallProgram,
    CallUserTriton,
    CheckNan,
    Conditional,
    CopyInto,
    DebugPrint,
    DefineChoice,
    DefineDevice,
    DefineKernel,
    DefineSymbol,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Return,
    Reuse,
    ScanLoop,
    TakeConstant,
    TakeInput,
    View,
    WhileLoop,
)
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    BufferReference,
    CheckFact,
    ComputeNumber,
    Enumerated,
    Layout,
    ListOf,
    Literal,
    Operand,
    ReadItem,
    ReadSize,
    ViewReference,
)
from fusewright.runtime import generated as runtime
from fusewright.runtime.fused_graph import KernelModule, ProgramModule
from fusewright.wrapper.line_emitter import LineEmitter
from fusewright.wrapper.names import layout_check, names_of, shown_values, user_place

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
"""What `Compound` indices do."""


def emit_fx(
    lines: Sequence[Line], kernels: Mapping[str, Any], constants: Mapping[str, Any]
) -> fx.GraphModule:
    """The module that does what the lines say; it takes sizes and tensors one by one, in the lines'
    order, and returns a tuple.

    `kernels`: what launches each, by name; `constants`: tensors, and programs that were compiled
    apart. Nodes have `meta["origins"]`, and `meta["layout"]` where they are tensors that the lines
    know.
    """
    emitter = _FxEmitter(kernels, constants)
    for line in lines:
        emitter.origins = getattr(line, "origins", ())
        emitter.write_line(line)
    return fx.GraphModule(emitter.root, emitter.graph, class_name="FusedGraph")


def fused_examples(lines: Sequence[Line], hints: Mapping[str, int | float]) -> list[Any]:
    """Inputs of the kind that the emitted module takes: tensors on the `meta` device, and numbers
    that are hints.
    """
    examples: list[Any] = []
    for line in lines:
        match line:
            case DefineSymbol(name=name):
                examples.append(hints[name])
            case TakeInput(buffer=buffer):
                size, stride = (
                    [index.evaluate(hints) for index in indices]
                    for indices in (buffer.layout.size, buffer.layout.stride)
                )
                dtype = _dtype(buffer.layout.dtype)
                examples.append(torch.empty_strided(size, stride, dtype=dtype, device="meta"))
    return examples


class _FxEmitter(LineEmitter):
    """Collects the nodes; one method a line type."""

    def __init__(self, kernels: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.origins: tuple[Origin, ...] = ()
        """The origins of the line that is being added."""

        self._kernels = kernels
        self._constants = constants
        self._definitions: dict[str, Kernel] = {}
        self._values: dict[str, Any] = {}
        """Nodes of buffers and symbols by name."""

        self._devices: dict[str, torch.device] = {}
        self._numbers: dict[Index, Any] = {}
        self._layouts: dict[str, tuple[tuple[Index, ...], tuple[Index, ...]]] = {}
        self._empty_strided = runtime.allocator()

    # Lines ----------------------------------------------------------------------------------------

    def define_device(self, line: DefineDevice) -> None:
        self._devices[line.slot] = torch.device(line.device)

    def define_symbol(self, line: DefineSymbol) -> None:
        self._values[line.name] = self.graph.placeholder(line.name)

    def take_input(self, line: TakeInput) -> None:
        self._define(line.buffer.name, line.buffer.layout, self.graph.placeholder(line.buffer.name))

    def take_constant(self, line: TakeConstant) -> None:
        name = line.buffer.name
        self.root.register_buffer(name, self._constants[name])
        self._define(name, line.buffer.layout, self.graph.get_attr(name))

    def view(self, line: View) -> None:
        node = self._view(line.source, line.buffer.layout, line.buffer.name)
        self._define(line.buffer.name, line.buffer.layout, node)

    def ensure_layout(self, line: EnsureLayout) -> None:
        name, layout = line.buffer.name, line.buffer.layout
        function = getattr(runtime, layout_check(line).removeprefix("runtime."))
        extents = self._extents(layout)
        arguments = (self._values[name], *extents, _dtype(layout.dtype), line.owner)
        self._define(name, layout, self._call(function, arguments))
        if not layout.decides_strides:
            del self._layouts[name]

    def allocate(self, line: Allocate | Place) -> None:
        layout = line.buffer.layout
        keywords = {"dtype": _dtype(layout.dtype), "device": self._device(layout.device)}
        node = self._call(self._empty_strided, self._extents(layout), keywords, line.buffer.name)
        self._define(line.buffer.name, layout, node)

    place_in_arena = allocate

    def allocate_arena(self, line: Arena) -> None:
        """A module's values die where they are no longer used, each with its own memory."""

    def reuse(self, line: Reuse) -> None:
        layout, source = line.buffer.layout, line.source
        is_same = self._layouts.get(source) == (layout.size, layout.stride)
        node = self._values[source] if is_same else self._view(source, layout, line.buffer.name)
        del self._values[source]
        self._define(line.buffer.name, layout, node)

    def free(self, line: Free | FreeIfNotReused) -> None:
        """A module's values die with the last node that uses them."""

    def define_kernel(self, line: DefineKernel) -> None:
        kernel = line.kernel
        self._definitions[kernel.name] = kernel
        self.root.add_module(kernel.name, KernelModule(kernel, self._kernels[kernel.name]))

    def call_kernel(self, line: CallKernel) -> None:
        launch = line.launch
        self.origins = launch.origins
        facts = self._definitions[launch.kernel].facts
        arguments = [self._values[name] for name in launch.buffers]
        arguments += [self._number(size) for size in (*launch.sizes, launch.units)]
        arguments += [facts.grain] if isinstance(facts, CpuFacts) else []
        self._note(self.graph.call_module(launch.kernel, tuple(arguments)))

    def define_choice(self, line: DefineChoice) -> None:
        self.root.add_module(line.name, ProgramModule(self._kernels[line.name]))

    def call_choice(self, line: CallChoice) -> None:
        arguments = [self._values[name] for name in line.buffers]
        arguments += [self._number(size) for size in line.sizes]
        self._note(self.graph.call_module(line.choice, tuple(arguments)))

    def call_extern(self, line: CallExtern) -> None:
        node = self._call_operator(line.operator, line.arguments, line.keywords)
        if line.is_tuple:
            self._unpack(node, line.results)
        elif line.results and line.results[0] is not None:
            self._values[line.results[0]] = node

    def call_program(self, line: CallProgram) -> None:
        if not hasattr(self.root, line.name):
            self.root.add_module(line.name, ProgramModule(self._constants[line.name]))
        arguments = tuple(map(self._operand, line.arguments))
        node = self._note(self.graph.call_module(line.name, arguments))
        self._unpack(node, line.results)

    def call_user_triton(self, line: CallUserTriton) -> None:
        if not hasattr(self.root, line.name):
            launch = self._constants[line.name]
            run = runtime.telling_of_writes(launch) if line.is_behind_writes else launch
            self.root.add_module(line.name, ProgramModule(run))
        self.origins = line.origins
        arguments = tuple(map(self._operand, line.arguments))
        self._note(self.graph.call_module(line.name, arguments))

    def conditional(self, line: Conditional) -> None:
        then, other = (self._kernels[block.name] for block in (line.then, line.other))

        def run(predicate: Any, *arguments: Any) -> Any:
            return (then if predicate else other)([*arguments])

        self._flow(line.then.name, run, (line.predicate, *line.arguments), line.results)

    def while_loop(self, line: WhileLoop) -> None:
        condition, body = (self._kernels[block.name] for block in (line.condition, line.body))
        shape = line.carried, line.stacked

        def run(*arguments: Any) -> Any:
            return runtime.while_loop(condition, body, arguments, *shape)

        self._flow(line.body.name, run, line.arguments, line.results)

    def scan(self, line: ScanLoop) -> None:
        body = self._kernels[line.body.name]
        shape = line.carried, line.sliced, line.stacked, line.is_reversed

        def run(*arguments: Any) -> Any:
            return runtime.scan(body, arguments, *shape)

        self._flow(line.body.name, run, line.arguments, line.results)

    def _flow(
        self,
        name: str,
        run: Callable[..., Any],
        arguments: Sequence[Operand],
        results: Sequence[str | None],
    ) -> None:
        self.root.add_module(name, ProgramModule(run))
        inputs = tuple(map(self._operand, arguments))
        self._unpack(self._note(self.graph.call_module(name, inputs)), results)

    def compute_number(self, line: ComputeNumber) -> None:
        function = runtime.NUMBER_FUNCTIONS[line.function]
        self._values[line.name] = self._call(function, tuple(map(self._operand, line.arguments)))

    def read_size(self, line: ReadSize) -> None:
        arguments = (self._values[line.buffer], line.dimension)
        self._values[line.name] = self._call(torch.ops.aten.sym_size.int, arguments)

    def read_item(self, line: ReadItem) -> None:
        arguments = (self._operand(line.source),)
        self._values[line.name] = self._note(self.graph.call_method("item", arguments))

    def check_fact(self, line: CheckFact) -> None:
        self._call(runtime.check_fact, (self._number(line.number), line.message))

    def call_extern_out(self, line: CallExternOut) -> None:
        self._call_operator(line.operator, line.arguments, line.all_keywords)

    def copy_into(self, line: CopyInto) -> None:
        arguments = (self._values[line.target], self._operand(line.source))
        self._call(torch.ops.aten.copy_.default, arguments)

    def debug_print(self, line: DebugPrint) -> None:
        values = self._operand(shown_values(line.values))
        shown = (line.level, line.when, line.kernel, names_of(line.values), values)
        self._call(runtime.debug_print, (*shown, user_place(line.origins), line.folder))

    def check_nan(self, line: CheckNan) -> None:
        values = self._operand(shown_values(line.values))
        arguments = (line.kernel, names_of(line.values), values, user_place(line.origins))
        self._call(runtime.check_nan, arguments)

    def assert_layout(self, line: AssertLayout) -> None:
        layout, name = line.buffer.layout, line.buffer.name
        arguments = (self._values[name], *self._extents(layout), _dtype(layout.dtype), name)
        self._call(runtime.assert_layout, arguments)

    def give_back(self, line: Return) -> None:
        self.graph.output(tuple(map(self._operand, line.outputs)))

    # Nodes ----------------------------------------------------------------------------------------

    def _define(self, name: str, layout: Layout, node: fx.Node) -> None:
        node.meta.setdefault("layout", layout)
        self._values[name] = node
        self._layouts[name] = (layout.size, layout.stride)

    def _note(self, node: fx.Node) -> fx.Node:
        node.meta["origins"] = self.origins
        return node

    def _call(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> fx.Node:
        node = self.graph.create_node(
            "call_function", function, tuple(arguments), dict(keywords or {}), name
        )
        return self._note(node)

    def _call_operator(
        self,
        name: str,
        arguments: Sequence[Operand],
        keywords: Sequence[tuple[str, Operand]] = (),
    ) -> fx.Node:
        named = {name: self._operand(value) for name, value in keywords}
        return self._call(_operator(name), [*map(self._operand, arguments)], named)

    def _unpack(self, node: fx.Node, names: Sequence[str | None]) -> None:
        for position, name in enumerate(names):
            if name is not None:
                self._values[name] = self._call(operator.getitem, (node, position), None, name)

    def _view(self, source: str, layout: Layout, name: str) -> fx.Node:
        offset = self._number(layout.offset)
        arguments = (self._values[source], *self._extents(layout), offset)
        return self._call(runtime.reinterpret, arguments, None, name)

    def _extents(self, layout: Layout) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(map(self._number, layout.size)), tuple(map(self._number, layout.stride))

    def _operand(self, operand: Operand) -> Any:
        match operand:
            case BufferReference(name=name):
                return self._values[name]
            case Literal(value=value):
                return value
            case Enumerated(kind="device", name=name):
                return self._device(name)
            case Enumerated(name=name):
                return getattr(torch, name)
            case ListOf(items=items):
                return [self._operand(item) for item in items]
            case ViewReference():
                raise TypeError(f"{operand} has no line of its own")
            case Index():
                return self._number(operand)

    def _device(self, name: str) -> torch.device:
        return self._devices.get(name) or torch.device(name)

    # Numbers --------------------------------------------------------------------------------------

    def _number(self, index: Index) -> Any:
        """The number of an expression: itself, or a node that computes it."""
        if not index.terms:
            return index.constant
        if index not in self._numbers:
            parts = [self._product(*term) for term in index.terms]
            if index.constant:
                parts.append(index.constant)
            self._numbers[index] = self._combined(operator.add, parts)
        return self._numbers[index]

    def _product(self, coefficient: int, atoms: Sequence[Atom]) -> Any:
        factors = [self._atom(atom) for atom in atoms]
        return self._combined(operator.mul, factors + ([coefficient] if coefficient != 1 else []))

    def _atom(self, atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return self._values[atom.name]
        parts = (self._number(atom.left), self._number(atom.right))
        return self._call(_OPERATIONS[atom.operator], parts)

    def _combined(self, function: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
        total, *others = parts
        for part in others:
            total = self._call(function, (total, part))
        return total


def _dtype(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.torch_name)  # type: ignore[no-any-return]


def _operator(name: str) -> Callable[..., Any]:
    """An overload by its full name, such as `aten.mm.out`."""
    namespace, *path = name.split(".")
    function: Any = getattr(torch.ops, namespace)
    for part in path:
        function = getattr(function, part)
    return function  # type: ignore[no-any-return]
