"""The native emitter: wrapper lines to the operations of a `CallPlan`, which does what the Python
module does, without its statements.

before                          after
------                          -----
y = allocate                    ("allocate", (slot 1, kind ~0, 1 dimension, number 0, number 1))
launch k(x, y)                  ("launch", (kernel ~1, 2, slot 0, slot 1, 0, number 0, grain))
free x                          ("release", (slot 0,))

Values live in slots, the inputs in the first; sizes are numbers, computed once where a line first
needs them. A buffer that only kernels use is memory: where it takes over another's it needs no new
view, however it is laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fusewright.ir.dtype import DType
from fusewright.ir.forms import indices_in
from fusewright.ir.index import Index, Symbol, integer
from fusewright.ir.kernel import CpuFacts, Kernel
from fusewright.ir.lines import (
    Allocate,
    Arena,
    AssertLayout,
    Block,
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
from fusewright.operators import facts
from fusewright.records import replace
from fusewright.runtime.calling import CallingOrder, SymbolSource
from fusewright.runtime.native_plan import NativePlan, Operation
from fusewright.wrapper.choices import expand
from fusewright.wrapper.dispatched import DispatchedCall, dispatched_call
from fusewright.wrapper.line_emitter import LineEmitter
from fusewright.wrapper.names import (
    constant_path,
    layout_check,
    literal_text,
    names_of,
    number_path,
    operator_path,
    shown_values,
    user_kernel_path,
    user_place,
)
from fusewright.wrapper.native_choices import sections_of_choice
from fusewright.wrapper.native_numbers import Numbers
from fusewright.wrapper.shown_buffers import given_addresses, shown_whole

PRODUCTS = {"aten.mm.out": "mm", "aten.bmm.out": "bmm", "aten.addmm.out": "addmm"}
"""Operators that have an operation of their own, of floats."""

LAUNCHES = {"cpu": "launch", "triton": "launch on GPU"}
"""Operations for kernels of these languages; those of others are called as Python calls them."""

OUT = repr(("out",))

Geometry = tuple[tuple[Index, ...], tuple[Index, ...]]
"""Sizes and strides."""


def pack_native(
    lines: Sequence[Line],
    places: Sequence[int],
    order: CallingOrder | None = None,
    places_of_blocks: Mapping[str, Sequence[int]] | None = None,
) -> NativePlan:
    """The plan of `lines`; `places` are the lines of the Python module that do the same. It takes
    the captured graph's arguments as `order` tells; without it, as the lines say.
    """
    emitter = _NativeEmitter(places_of_blocks or {})
    if order is not None:
        emitter.place = min(places)
        emitter.take_arguments(order)
    return emitter.pack(lines, places)


class _NativeEmitter(LineEmitter):
    """Collects the plan's parts; one method a line type."""

    def __init__(self, places: Mapping[str, Sequence[int]], prefix: str = "") -> None:
        self.place = 0
        self.blocks: dict[str, NativePlan] = {}
        """Plans of the blocks that the lines run, by name."""

        self._places_of_blocks = places
        self._prefix = prefix
        """The prefix of the names of constants."""

        self.operations: list[Operation] = []
        self.input_count = 0
        self.slot_count = 0
        self.numbers = Numbers(self.write)
        self.constants: dict[str, int] = {}
        """Their places among the constants, by text."""

        self._shown_whole: frozenset[str] = frozenset()
        self._tensors: Iterator[int] | None = None
        """Slots of the tensors among the arguments, where a `CallingOrder` tells them."""

        self._slots: dict[str, int] = {}
        """By buffer or symbol; those of constants are ~place."""

        self._free: list[int] = []
        """Slots that hold nothing any more."""

        self._temporary: list[int] = []
        """Slots whose values the current line alone needs."""

        self._places: dict[str, Place] = {}
        """By buffer in an arena, where."""

        self._addresses: dict[tuple[str, int], int] = {}
        """By arena and offset, the slot of the address."""

        self._owned: set[str] = set()
        """Buffers whose memory this plan allocated, or a library call for it alone."""

        self._geometries: dict[str, Geometry] = {}
        """How the tensors in the slots of inputs and owned buffers are laid out."""

        self._types: dict[str, DType] = {}
        """Dtypes of the buffers that the plan allocates, or that take over memory."""

        self._kernels: dict[str, Kernel] = {}
        self._choices: dict[str, DefineChoice] = {}

    def pack(self, lines: Sequence[Line], places: Sequence[int]) -> NativePlan:
        """The plan of `lines`."""
        for line in lines:
            if isinstance(line, DefineKernel):
                self._kernels[line.kernel.name] = line.kernel
            if isinstance(line, DefineChoice):
                self._choices[line.name] = line
        by_address = given_addresses(self._kernels, LAUNCHES)
        self._shown_whole = shown_whole(lines, by_address, self._choices)
        self.write_lines(lines, places)
        return NativePlan(
            operations=tuple(self.operations),
            inputs=self.input_count,
            slots=self.slot_count,
            numbers=tuple(self.numbers.values),
            constants=tuple(self.constants),
            blocks=self.blocks,
        )

    def write_lines(self, lines: Sequence[Line], places: Sequence[int] = ()) -> None:
        for line, place in zip(lines, places or [self.place] * len(lines), strict=True):
            self.place = place
            self.write_line(line)

    def write(self, operation: str, *operands: int | None) -> None:
        self.operations.append((operation, self.place, operands))

    def take_arguments(self, order: CallingOrder) -> None:
        """Find the numbers in the captured graph's arguments, and say where the tensors are."""
        self.input_count = self.slot_count = order.arguments
        self._tensors = iter(order.tensors)
        used = set(order.tensors)
        assert len(used) == len(order.tensors)
        for number in order.numbers:
            if number.is_argument:
                self._slots[number.symbol] = number.position
                self.numbers.take_object(number.symbol, number.position)
                used.add(number.position)
            else:
                self.numbers.compute(number)
        for position in range(order.arguments):
            if position not in used:
                self._release(position)

    # Lines ----------------------------------------------------------------------------------------

    def nothing(self, line: DefineDevice | DefineKernel | DefineChoice) -> None:
        """Constants name the Python module's variable, and all are known before the first line."""

    define_device = define_kernel = define_choice = nothing

    def define_symbol(self, line: DefineSymbol) -> None:
        if self._tensors is None:
            self._slots[line.name] = self._input_slot(line.position)
            self.numbers.take_object(line.name, line.position)

    def take_input(self, line: TakeInput) -> None:
        name = line.buffer.name
        if self._tensors is None:
            self._slots[name] = self._input_slot(line.position)
        else:
            self._slots[name] = next(self._tensors)
        self._geometries[name] = _geometry(line.buffer.layout)

    def _input_slot(self, position: int) -> int:
        self.input_count = self.slot_count = max(self.input_count, position + 1)
        return position

    def take_constant(self, line: TakeConstant) -> None:
        name = line.buffer.name
        self._slots[name] = self._constant(constant_path(self._prefix + name))

    def view(self, line: View) -> None:
        source, layout, is_read_only = line.source, line.buffer.layout, line.is_read_only
        if is_read_only and self._slots[source] < 0:
            sizes = (str(tuple([size.constant for size in row])) for row in _geometry(layout))
            arguments = ", ".join(
                (constant_path(self._prefix + source), *sizes, str(layout.offset))
            )
            self._slots[line.buffer.name] = self._constant(f"runtime.reinterpret({arguments})")
            return
        slot = self._view(source, layout, is_read_only)
        self._temporary.remove(slot)
        self._slots[line.buffer.name] = slot
        self._release_temporaries()

    def allocate(self, line: Allocate | Arena) -> None:
        buffer = line.buffer
        geometry = self._geometry_numbers(buffer.layout)
        self.write("allocate", self._new_slot(buffer.name), self._kind(buffer.layout), *geometry)
        self._owned.add(buffer.name)
        self._types[buffer.name] = buffer.layout.dtype
        self._geometries[buffer.name] = _geometry(buffer.layout)

    allocate_arena = allocate

    def place_in_arena(self, line: Place) -> None:
        """A buffer that only kernels use is an address; one slot serves all that begin there."""
        buffer, arena = line.buffer, self._slots[line.arena]
        name, layout = buffer.name, buffer.layout
        self._places[name] = line
        self._types[name] = layout.dtype
        if name not in self._shown_whole:
            begin = line.arena, line.offset
            if begin not in self._addresses:
                self._addresses[begin] = self._new_slot()
                self.write("point", self._addresses[begin], arena, line.offset)
            self._slots[name] = self._addresses[begin]
            return
        self._owned.add(name)
        self._geometries[name] = _geometry(layout)
        self._write_place(self._new_slot(name), line)

    def _write_place(self, slot: int, line: Place) -> None:
        """Hold a part of an arena as a tensor."""
        layout = line.buffer.layout
        rest = self._kind(layout), line.offset, *self._geometry_numbers(layout)
        self.write("place", slot, self._slots[line.arena], *rest)

    def reuse(self, line: Reuse) -> None:
        name, source, layout = line.buffer.name, line.source, line.buffer.layout
        place = self._places.pop(source, None)
        if place is not None and self._geometries.get(source) != _geometry(layout):
            self._release_place(source)
            self.place_in_arena(replace(place, buffer=line.buffer))
            return
        if place is not None:
            self._places[name] = place
        self._types[name] = layout.dtype
        if source in self._owned:
            self._owned.add(name)
        geometry = self._geometries.pop(source, None)
        is_memory = name not in self._shown_whole and (geometry or source in self._owned)
        if is_memory or geometry == _geometry(layout):
            self._slots[name] = self._slots.pop(source)
            if geometry is not None:
                self._geometries[name] = geometry
            return
        slot = self._view(source, layout, is_read_only=False)
        self._temporary.remove(slot)
        self._slots[name] = slot
        self._geometries[name] = _geometry(layout)
        self._release(self._slots.pop(source))

    def free(self, line: Free | FreeIfNotReused) -> None:
        name = line.name
        self._places.pop(name, None)
        self._release_place(name)
        for begin in [begin for begin in self._addresses if begin[0] == name]:
            self._free.append(self._addresses.pop(begin))

    def _release_place(self, name: str) -> None:
        """A buffer is used no more: what it was alone in its slot is released."""
        slot = self._slots.pop(name)
        if slot not in self._addresses.values():
            self._release(slot)

    def call_kernel(self, line: CallKernel) -> None:
        launch, kernel = line.launch, self._kernels[line.launch.kernel]
        function = self._constant(launch.kernel)
        buffers = [self._slots[name] for name in launch.buffers]
        if kernel.language in LAUNCHES:
            sizes = [self.numbers.place(size) for size in launch.sizes]
            work = [self.numbers.place(launch.units)]
            if isinstance(kernel.facts, CpuFacts):
                work.append(kernel.facts.grain)
            operation = LAUNCHES[kernel.language]
            self.write(operation, function, len(buffers), *buffers, len(sizes), *sizes, *work)
            return
        numbers = [*launch.sizes, launch.units]
        if isinstance(kernel.facts, CpuFacts):
            numbers.append(integer(kernel.facts.grain))
        arguments = [*buffers, *(self._operand(number) for number in numbers)]
        self.write("call", None, function, len(arguments), *arguments, None)
        self._release_temporaries()

    def call_choice(self, line: CallChoice) -> None:
        choice = self._choices[line.choice]
        ways = [expand(choice, alternative, line) for alternative in choice.alternatives]
        for index in (i for way in ways for own in way for i in indices_in(own)):
            self.numbers.place(index)
        sizes = [self.numbers.place(size) for size in line.sizes]
        sections = [self._section(self._decide, line)]
        sections += [self._section(self.write_lines, way) for way in ways]
        function = self._constant(line.choice)
        self.operations += sections_of_choice(function, sizes, sections, self.place)

    def _section(self, emit: Callable[[Any], None], argument: Any) -> list[Operation]:
        """The operations that `emit` writes."""
        outer, self.operations = self.operations, []
        count = self.numbers.operations
        emit(argument)
        section, self.operations = self.operations, outer
        assert self.numbers.operations == count, "numbers are computed ahead of all sections"
        return section

    def _decide(self, line: CallChoice) -> None:
        """Call the choice, which measures the alternatives, on tensors."""
        slots = [self._as_tensor(name) for name in line.buffers]
        slots += [self._integer(size) for size in line.sizes]
        function = self._constant(line.choice)
        self.write("call", None, function, len(slots), *slots, None)
        self._release_temporaries()

    def _as_tensor(self, name: str) -> int:
        """The slot of a buffer that may be an address alone."""
        if self._slots[name] not in self._addresses.values():
            return self._slots[name]
        slot = self._temporary_slot()
        self._write_place(slot, self._places[name])
        return slot

    def call_extern(self, line: CallExtern) -> None:
        dispatched = dispatched_call(line)
        if dispatched is not None:
            self._dispatch(line, dispatched)
            return
        result = self._call(line.operator, line.arguments, line.keywords, bool(line.results))
        if line.is_tuple:
            self._unpack(result, line.results)
        elif line.results and line.results[0] is not None:
            assert result is not None
            self._slots[line.results[0]] = result
            if facts(line.operator).gives_new_memory:
                self._owned.add(line.results[0])
        elif result is not None:
            self._release(result)

    def _dispatch(self, line: CallExtern, call: DispatchedCall) -> None:
        texts = (call.name, call.overload, call.kinds)
        function, *others = map(self._constant, (operator_path(line.operator), *map(repr, texts)))
        slots = [self._operand(operand) for operand in call.operands]
        names = self._constant(repr(call.names)) if call.names else None
        results = [None if name is None else self._new_slot(name) for name in line.results]
        self.write("dispatch", function, *others, len(slots), *slots, names, len(results), *results)
        self._release_temporaries()
        if len(results) == 1 and results[0] is not None and facts(line.operator).gives_new_memory:
            self._owned.update(name for name in line.results if name is not None)

    def call_program(self, line: CallProgram) -> None:
        path = constant_path(self._prefix + line.name)
        self._unpack(self._call_function(path, line.arguments, (), True), line.results)

    def call_user_triton(self, line: CallUserTriton) -> None:
        path = user_kernel_path(self._prefix + line.name, line)
        self._call_function(path, line.arguments, (), has_result=False)

    def conditional(self, line: Conditional) -> None:
        predicate = self._operand(line.predicate)
        arguments = [self._operand(argument) for argument in line.arguments]
        blocks = [self._block(block) for block in (line.then, line.other)]
        result = self._new_slot()
        self.write("branch", result, predicate, *blocks, len(arguments), *arguments)
        self._release_temporaries()
        self._unpack(result, line.results)

    def while_loop(self, line: WhileLoop) -> None:
        blocks = [self._block(block) for block in (line.condition, line.body)]
        shape = line.carried, line.stacked
        self._loop("runtime.while_loop", blocks, line, [self._constant(repr(n)) for n in shape])

    def scan(self, line: ScanLoop) -> None:
        shape = line.carried, line.sliced, line.stacked, line.is_reversed
        more = [self._constant(repr(number)) for number in shape]
        self._loop("runtime.scan", [self._block(line.body)], line, more)

    def _loop(
        self, path: str, blocks: Sequence[int], line: WhileLoop | ScanLoop, more: Sequence[int]
    ) -> None:
        slots = (*blocks, self._operand(ListOf(line.arguments)), *more)
        result = self._new_slot()
        self.write("call", result, self._constant(path), len(slots), *slots, None)
        self._release_temporaries()
        self._unpack(result, line.results)

    def _block(self, block: Block) -> int:
        """The constant that is the plan of a block: it is found by the block's name."""
        places = self._places_of_blocks
        emitter = _NativeEmitter(places, f"{block.name}_")
        emitter.input_count = emitter.slot_count = block.count
        emitter._kernels, emitter._choices = self._kernels, self._choices
        self.blocks[block.name] = emitter.pack(block.lines, places[block.name])
        return self._constant(block.name)

    def compute_number(self, line: ComputeNumber) -> None:
        result = self._call_function(number_path(line.function), line.arguments, (), True)
        assert result is not None
        self._slots[line.name] = result
        self.numbers.take_object(line.name, result)

    def read_size(self, line: ReadSize) -> None:
        source = SymbolSource(line.name, self._slots[line.buffer], line.dimension)
        self.numbers.compute(source)

    def read_item(self, line: ReadItem) -> None:
        result = self._call_function("torch.Tensor.item", (line.source,), (), True)
        assert result is not None
        self._slots[line.name] = result
        self.numbers.take_object(line.name, result)

    def check_fact(self, line: CheckFact) -> None:
        self._call_function("runtime.check_fact", (line.number, Literal(line.message)), (), False)

    def call_extern_out(self, line: CallExternOut) -> None:
        product = PRODUCTS.get(line.operator)
        if product is not None and not line.keywords and self._types[line.out].is_float:
            function = self._constant(operator_path(line.operator))
            tensors = [self._operand(argument) for argument in line.arguments]
            self.write(product, function, *tensors, self._slots[line.out], self._constant(OUT))
            self._release_temporaries()
            return
        self._call(line.operator, line.arguments, line.all_keywords, False)

    def copy_into(self, line: CopyInto) -> None:
        self.write("copy", self._slots[line.target], self._operand(line.source))
        self._release_temporaries()

    def ensure_layout(self, line: EnsureLayout) -> None:
        layout = line.buffer.layout
        function, owner = self._constant(layout_check(line)), self._constant(repr(line.owner))
        constants = function, owner, self._kind(layout)
        geometry = self._geometry_numbers(layout)
        self.write("ensure layout", self._slots[line.buffer.name], *constants, *geometry)
        if layout.decides_strides:
            self._geometries[line.buffer.name] = _geometry(layout)

    def debug_print(self, line: DebugPrint) -> None:
        literals = map(Literal, (line.level, line.when, line.kernel))
        place, folder = Literal(user_place(line.origins)), Literal(line.folder)
        names, values = _literals(names_of(line.values)), shown_values(line.values)
        arguments: list[Operand] = [*literals, names, values, place, folder]
        self._call_function("runtime.debug_print", arguments, (), False)

    def check_nan(self, line: CheckNan) -> None:
        place, names = Literal(user_place(line.origins)), _literals(names_of(line.values))
        arguments = Literal(line.kernel), names, shown_values(line.values), place
        self._call_function("runtime.check_nan", arguments, (), False)

    def assert_layout(self, line: AssertLayout) -> None:
        layout = line.buffer.layout
        arguments = [
            self._slots[line.buffer.name],
            self._sizes(layout.size),
            self._sizes(layout.stride),
            self._constant(f"torch.{layout.dtype.torch_name}"),
            self._constant(repr(line.buffer.name)),
        ]
        function = self._constant("runtime.assert_layout")
        self.write("call", None, function, len(arguments), *arguments, None)
        self._release_temporaries()

    def give_back(self, line: Return) -> None:
        outputs = [self._operand(operand) for operand in line.outputs]
        self.write("return", len(outputs), *outputs)

    # Calls ----------------------------------------------------------------------------------------

    def _call(
        self,
        operator: str,
        arguments: Sequence[Operand],
        keywords: Sequence[tuple[str, Operand]],
        has_result: bool,
    ) -> int | None:
        return self._call_function(operator_path(operator), arguments, keywords, has_result)

    def _call_function(
        self,
        path: str,
        arguments: Sequence[Operand],
        keywords: Sequence[tuple[str, Operand]],
        has_result: bool,
    ) -> int | None:
        """Call what `path` says; gives the slot of the result."""
        operands = (*arguments, *(value for _, value in keywords))
        slots = [self._operand(operand) for operand in operands]
        names = self._constant(repr(tuple(name for name, _ in keywords))) if keywords else None
        result = self._new_slot() if has_result else None
        self.write("call", result, self._constant(path), len(slots), *slots, names)
        self._release_temporaries()
        return result

    def _unpack(self, result: int | None, names: Sequence[str | None]) -> None:
        """Give the items of a tuple slots of their own; what is not used is dropped."""
        if result is None:  # of no results
            return
        slots = [None if name is None else self._new_slot(name) for name in names]
        self.write("unpack", result, len(slots), *slots)
        self._free.append(result)

    def _operand(self, operand: Operand) -> int:
        """The slot or constant that holds an operand."""
        match operand:
            case BufferReference(name=name):
                return self._slots[name]
            case ViewReference():
                raise TypeError(f"{operand} has no line of its own")
            case Literal() | Enumerated():
                return self._constant(literal_text(operand))
            case ListOf(items=items):
                return self._collect("list", [self._operand(item) for item in items])
            case Index():
                return self._integer(operand)

    def _collect(self, kind: str, items: Sequence[int]) -> int:
        slot = self._temporary_slot()
        self.write(kind, slot, len(items), *items)
        return slot

    def _integer(self, index: Index) -> int:
        """The slot or constant of an integer as an object; a symbol's is what the call was
        given.
        """
        if not index.terms:
            return self._constant(str(index.constant))
        (_, atoms), *others = index.terms
        if not others and isinstance(atoms[0], Symbol) and index == atoms[0].index:
            slot = self._slots.get(atoms[0].name)
            if slot is not None:
                return slot
        slot = self._temporary_slot()
        self.write("make integer", slot, self.numbers.place(index))
        return slot

    def _view(self, source: str, layout: Layout, is_read_only: bool) -> int:
        """A slot for the memory of `source` through another layout. Views that autograd may have to
        know of, those of memory that is not ours, are made by torch.
        """
        if source in self._owned or is_read_only:
            geometry, offset = self._geometry_numbers(layout), self.numbers.place(layout.offset)
            slot = self._temporary_slot()
            self.write("reinterpret", slot, self._slots[source], *geometry, offset)
            return slot
        arguments = [
            self._slots[source],
            self._sizes(layout.size),
            self._sizes(layout.stride),
            self._integer(layout.offset),
        ]
        slot = self._temporary_slot()
        function = self._constant("runtime.reinterpret")
        self.write("call", slot, function, len(arguments), *arguments, None)
        return slot

    def _sizes(self, indices: Sequence[Index]) -> int:
        """The slot or constant of a tuple of integers."""
        if all(not index.terms for index in indices):
            return self._constant(str(tuple(index.constant for index in indices)))
        return self._collect("tuple", [self._integer(index) for index in indices])

    # Slots, constants and numbers -----------------------------------------------------------------

    def _new_slot(self, name: str | None = None) -> int:
        """A slot that is free, for the buffer or symbol `name`."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.slot_count
            self.slot_count += 1
        if name is not None:
            self._slots[name] = slot
        return slot

    def _temporary_slot(self) -> int:
        slot = self._new_slot()
        self._temporary.append(slot)
        return slot

    def _release(self, slot: int) -> None:
        if slot >= 0:
            self.write("release", slot)
            self._free.append(slot)

    def _release_temporaries(self) -> None:
        while self._temporary:
            self._release(self._temporary.pop())

    def _constant(self, text: str) -> int:
        return ~self.constants.setdefault(text, len(self.constants))

    def _kind(self, layout: Layout) -> int:
        """The constant that says of what type and where tensors are."""
        dtype = f"torch.{layout.dtype.torch_name}"
        device = literal_text(Enumerated("device", layout.device))
        return self._constant(f"runtime.tensor_kind({dtype}, {device})")

    def _geometry_numbers(self, layout: Layout) -> tuple[int, ...]:
        """How many dimensions; then sizes and strides."""
        numbers = (self.numbers.place(index) for index in (*layout.size, *layout.stride))
        return len(layout.size), *numbers


def _literals(texts: Iterable[str]) -> ListOf:
    return ListOf(tuple(map(Literal, texts)))


def _geometry(layout: Layout) -> Geometry:
    return layout.size, layout.stride
