"""The driver: walks an ATen graph once, runs each operator's rule, and ends with a Program."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import fx

from fusewright.context import CompileContext
from fusewright.errors import FusewrightError, Location, Unsupported
from fusewright.interrupts import INTERRUPTS
from fusewright.ir.dtype import from_torch
from fusewright.ir.index import Index, contiguous_strides, integer
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    OPAQUE,
    Buffer,
    BufferReference,
    CopyBack,
    Layout,
    Literal,
    Operand,
    Program,
    ReadItem,
    ReadSize,
    ViewReference,
)
from fusewright.ir.raising import OPERATORS as MAY_RAISE
from fusewright.ir.raising import operator_name
from fusewright.lower.boxes import Box, Storage, must_realise, same_strides
from fusewright.lower.builder import Call, ProgramBuilder
from fusewright.lower.convolution import PACKED_CONVOLUTION
from fusewright.lower.extern import call_extern, operand
from fusewright.lower.factories import constant
from fusewright.lower.families import RULES, VIEWS
from fusewright.lower.put_back import put_backs
from fusewright.lower.user_kernels import launch_user_kernel
from fusewright.opaque import BUFFERS, Opaque, is_number
from fusewright.operators import facts
from fusewright.operators.layouts import may_lie_anyhow
from fusewright.records import replace
from fusewright.user_kernels import UserKernelOnCopies

aten = torch.ops.aten

COPY_BACK = "aten.copy_.default"
"""The one operator that may write to a graph input: its mutation, made visible."""

SHORT_ROW = 32
"""Elements of a row of what is looked up that is too short to be read well along memory."""

Readers = tuple[int, bool]
"""The number of operators that read a tensor, and whether one of them needs it in memory."""


class TracedGraph(Protocol):
    """A traced graph, as far as lowering needs it."""

    @property
    def graph(self) -> fx.Graph:
        """Functional ATen operators, each node with its fake value in `meta["val"]`."""

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:
        """The tensors that `get_attr` nodes name."""

    @property
    def replaced_inputs(self) -> Sequence[int]:
        """The inputs whose new values are the first outputs, and may take their memory."""


def lower(
    aten_graph: TracedGraph, context: CompileContext, *, layouts_are_free: bool = False
) -> Program:
    """The program that computes `aten_graph`.

    `layouts_are_free`: no result is kept for a backward, so that all but results may lie in memory
    as is best.

    Outputs have the sizes and strides of their fake values, and never share memory with an input or
    a constant.

    Raises: Unsupported, with the user's source line, for values that no buffer can hold.
    """
    return _Lowering(aten_graph, context, layouts_are_free).run()


class _Lowering:
    """One walk over one graph."""

    def __init__(
        self, aten_graph: TracedGraph, context: CompileContext, layouts_are_free: bool
    ) -> None:
        self.graph = aten_graph.graph
        self.replaced_inputs = aten_graph.replaced_inputs
        self.context = context
        free = layouts_are_free and may_lie_anyhow(aten_graph.graph)
        self.builder = ProgramBuilder(context, layouts_are_free=free)
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[Buffer] = []
        self.released: set[str] = set()
        self.constants: list[Buffer] = []
        self.outputs: tuple[Operand, ...] = ()
        self.layouts: dict[tuple[Any, ...], Layout] = {}
        self.readers = count_readers(self.graph)
        self.new_values = self._new_values()
        self.put_backs = put_backs(zip(self._results(), self._replaced(), strict=False))

    def run(self) -> Program:
        for node in self.graph.nodes:
            if INTERRUPTS.is_pending:
                INTERRUPTS.deliver()
            try:
                self.node(node)
            except FusewrightError:
                raise
            except Exception as error:
                error.add_note(
                    f"while lowering {node.format_node()} at {_location(node) or 'unknown line'}"
                )
                raise
        return Program(
            name="graph",
            inputs=tuple(self.inputs),
            sizes=tuple(self.builder.sizes.facts.values()),
            constants=tuple(self.constants),
            statements=(*self.builder.prologue, *self.builder.statements),
            outputs=self.outputs,
            mutations=self.mutations(),
            released_inputs=frozenset(self.released),
            origins=self.builder.origins,
            expressions=self.builder.expressions,
        )

    def node(self, node: fx.Node) -> None:
        """Give `node` its value: a box, an index, a number, or a tuple of these."""
        match node.op:
            case "placeholder":
                self.values[node] = self.placeholder(node)
            case "get_attr":
                self.values[node] = self.constant(node)
            case "call_function":
                if node not in self.values and not self.stored_into_whole(node):
                    self.values[node] = self.call(node)
            case "output":
                self.outputs = tuple(self.output(item) for item in _flat(node.args[0]))
            case _:
                raise Unsupported(f"a graph node of kind {node.op}", _location(node))

    # Inputs, constants, outputs ------------------------------------------------------------------

    def placeholder(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        if is_number(value):
            number = (
                self.builder.real_input(value, self.graph.find_nodes(op="placeholder").index(node))
                if isinstance(value, torch.SymFloat)
                else self.number(value)
            )
            self.builder.sizes.unknown.clear()
            return number
        buffer = Buffer(name=self.context.fresh("arg"), layout=self.layout(value, node))
        self.builder.sizes.unknown.clear()
        self.inputs.append(buffer)
        if node.meta.get("is_released"):
            self.released.add(buffer.name)
        return self.builder.input(buffer)

    def constant(self, node: fx.Node) -> Box:
        name = str(node.target)
        buffer = next((buffer for buffer in self.constants if buffer.name == name), None)
        if buffer is None:
            buffer = Buffer(name=name, layout=self.layout(node.meta["val"], node))
            self.constants.append(buffer)
        return self.builder.input(buffer)

    def output(self, item: Any) -> Operand:
        if not isinstance(item, fx.Node):
            return Literal(item)
        value = self.values[item]
        if isinstance(value, Box):
            return self.result(value, self.layout(item.meta["val"], item))
        return value if isinstance(value, Index) else Literal(value)

    def result(self, box: Box, wanted: Layout) -> BufferReference | ViewReference:
        """`box` in memory of its own, laid out as eager would have laid it out."""
        builder = self.builder
        if not box.storage.is_lazy and box.storage.buffer in (*self.inputs, *self.constants):
            box = builder.copy(box, wanted.stride)
        buffer = builder.realise(box)
        layout = builder.layout(box)
        if layout is None or not same_strides(layout.size, layout.stride, wanted.stride):
            box = builder.copy(box, wanted.stride)
            buffer = builder.realise(box)
            layout = buffer.layout
        if layout.stride != wanted.stride:  # of dimensions of one element, which operators read
            layout = replace(layout, stride=wanted.stride)
        return (
            BufferReference(buffer.name)
            if layout == buffer.layout
            else ViewReference(buffer.name, layout)
        )

    def _new_values(self) -> frozenset[fx.Node]:
        """Nodes that give the new value of an input which is their first argument."""
        return frozenset(
            node
            for node, target in zip(self._results(), self._replaced(), strict=False)
            if isinstance(node, fx.Node) and node.args[:1] == (target,)
        )

    def _results(self) -> Sequence[Any]:
        (output,) = self.graph.find_nodes(op="output")
        results: Sequence[Any] = output.args[0]
        return results

    def _replaced(self) -> list[fx.Node]:
        """The inputs whose new values are the first results."""
        if not self.replaced_inputs:
            return []
        placeholders = self.graph.find_nodes(op="placeholder")
        return [placeholders[index] for index in self.replaced_inputs]

    def mutations(self) -> tuple[tuple[str, str], ...]:
        """The first results, new values of inputs, each with its input."""
        targets = self._replaced()
        return tuple(
            (result.name, self.values[target].storage.buffer.name)
            for result, target in zip(self.outputs, targets, strict=False)
            if isinstance(result, BufferReference)
        )

    # Operators -----------------------------------------------------------------------------------

    def call(self, node: fx.Node) -> Any:
        meta = node.meta["val"]
        if isinstance(meta, (torch.SymInt, torch.SymFloat, int, float, bool)):
            return self.computed_number(node, meta)
        arguments = tuple(self.argument(argument) for argument in node.args)
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        keywords = {name: self.argument(value) for name, value in node.kwargs.items()}
        name = str(node.target)
        if name == COPY_BACK:
            return self.copy_back(*arguments[:2])
        if facts(name).overwrites and not self.is_last_reader(node):
            stride = self.layout(meta, node).stride
            arguments = (self.builder.copy(arguments[0], stride), *arguments[1:])
        replaces_input = node in self.new_values and self.is_only_reader(node)
        call = replace(self.call_of(node), replaces_input=replaces_input)
        if isinstance(node.target, UserKernelOnCopies):
            likes = node.target.likes
            layouts = [None if like is None else self.layout(like, node) for like in likes]
            return launch_user_kernel(
                call, node, node.target.call, arguments, layouts, partial(self.dies_with, node)
            )
        if is_nothing(call, meta):
            may_raise = operator_name(name) in MAY_RAISE and picks_by(arguments)
            if may_raise or is_sized_by_data(node.target, arguments):
                return call_extern(call, node, arguments, keywords)
            empty = tuple(constant(call, 0, which) for which in range(len(call.results)))
            return empty if isinstance(meta, (tuple, list)) else empty[0]
        result = self.apply_rule(call, arguments, keywords)
        if result is NotImplemented:
            return call_extern(call, node, arguments, keywords)
        self.realise_results(node, result)
        return result

    def call_of(self, node: fx.Node) -> Call:
        """The call that a rule of `node` is given."""
        name, meta = str(node.target), node.meta["val"]
        return Call(
            builder=self.builder,
            operator=name,
            results=tuple(
                self.layout(value, node)
                for value in (meta if isinstance(meta, (tuple, list)) else (meta,))
                if isinstance(value, BUFFERS)
            ),
            origin=_origin(name, node),
        )

    def stored_into_whole(self, node: fx.Node) -> bool:
        """Whether what `node` writes to a view could be stored into the tensor viewed, which then
        is the value of all nodes that put it back.
        """
        put_back = self.put_backs.get(node)
        if put_back is None:
            return False
        whole, (view, *others) = self.values[put_back.whole], map(self.argument, node.args)
        if view.storage is not whole.storage or whole.position is not None:
            return False
        if not self.is_last_reader(node, put_back.steps):
            stride = self.layout(put_back.whole.meta["val"], put_back.whole).stride
            whole = self.builder.copy(whole, stride)
        call = replace(self.call_of(node), replaces_input=True, is_put_back=True)
        if is_nothing(call, node.meta["val"]):
            return False
        keywords = {name: self.argument(value) for name, value in node.kwargs.items()}
        part = Box(whole.storage, view.size, view.position)
        result = self.apply_rule(call, (part, *others), keywords)
        if result is NotImplemented or result.position is not None or result.size != whole.size:
            return False
        self.values.update(dict.fromkeys((node, *put_back.steps), result))
        return True

    def computed_number(self, node: fx.Node, meta: Any) -> Any:
        """A number, which the operator reads from a tensor if it does not follow from sizes."""
        number = self.number(meta)
        if isinstance(number, Index) and str(number) in self.builder.sizes.unknown:
            name, source = str(number), self.argument(node.args[0])
            match str(node.target), node.args[1:]:
                case "aten._local_scalar_dense.default", _:
                    source = operand(self.builder, source)
                    self.builder.find_out(ReadItem(name=name, source=source))
                case "aten.sym_size.int", (int(dim),):
                    buffer = self.builder.realise(source).name
                    self.builder.find_out(ReadSize(name=name, buffer=buffer, dimension=dim))
                case target, _:
                    raise Unsupported(f"{target} gives a size", node.meta.get("location"))
        return number

    def is_only_reader(self, node: fx.Node) -> bool:
        """Whether nobody else reads the memory of the first argument of `node`."""
        return self.readers[_viewed(node)][0] == 1

    def is_last_reader(self, node: fx.Node, others: Collection[fx.Node] = ()) -> bool:
        """Whether nobody but `others` reads the memory of the first argument of `node` behind it:
        what was read before and is not computed yet is computed when the memory changes. Another
        buffer that a library call made of that memory may be read at any time.
        """
        if self.readers[_viewed(node)][0] == 1 + len(others):
            return True
        box = self.argument(node.args[0])
        buffer = box.storage.buffer
        return self.dies_with(node, box, others) and (
            buffer is None or not self.builder.is_aliased(buffer)
        )

    def dies_with(self, node: fx.Node, box: Box, others: Collection[fx.Node] = ()) -> bool:
        """Whether nothing but `others` behind `node` reads the memory of `box`."""

        def lies_there(value: Any) -> bool:
            if isinstance(value, (tuple, list)):
                return any(map(lies_there, value))
            return isinstance(value, Box) and _in_one_memory(value.storage, box.storage)

        return not any(
            user is not node and user not in self.values and user not in others
            for source, value in self.values.items()
            if lies_there(value)
            for user in source.users
        )

    def apply_rule(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The rule's result, or NotImplemented where the eager operator is to run."""
        rule = RULES.get(call.operator)
        if rule is None or not call.results:
            return NotImplemented
        foreign = _any_foreign(arguments) or _is_foreign(*call.results)
        if foreign and call.operator not in VIEWS and call.operator != PACKED_CONVOLUTION:
            return NotImplemented
        return rule(call, *arguments, **keywords)

    def copy_back(self, target: Box, source: Box) -> Box:
        """Overwrite a graph input: what was read from it lazily is computed before."""
        buffer = target.storage.buffer
        assert buffer is not None, "only graph inputs are written back"
        operand = self.builder.operand(source)
        self.builder.realise_readers(buffer.name)
        self.builder.statements.append(CopyBack(target=buffer.name, source=operand))
        return target

    def realise_results(self, node: fx.Node, result: Any) -> None:
        """Realise fresh results of `node` that the policy in `boxes` does not leave lazy."""
        if isinstance(result, Box):
            self.realise_if_needed(node, result, self.readers[node])
            return
        for item in node.users:
            if item.target is operator.getitem:
                self.realise_if_needed(item, result[item.args[1]], self.readers[item])

    def realise_if_needed(self, node: fx.Node, box: Any, readers: Readers) -> None:
        if not isinstance(box, Box) or box.storage.value is None:
            return
        cost = self.builder.costs.cost(box.storage.value)
        if must_realise(cost, *readers, self.context.options.expression_limit):
            self.builder.realise(box, self.permuted_strides(node, box) if cost.may_raise else None)

    def permuted_strides(self, node: fx.Node, box: Box) -> tuple[Index, ...] | None:
        """The strides by which the only reader of what was looked up, on a GPU, goes along memory:
        it permutes short rows, as those of a bias for each head; None: eager's are as good.
        """
        reader = next(iter(node.users), node)
        is_permuted = len(node.users) == 1 and reader.target is aten.permute.default
        if not is_permuted or box.device == "cpu":
            return None
        dims: Any = reader.args[1]
        order = [dim % box.rank for dim in dims]
        if order[-1] == box.rank - 1 or self.builder.hint(box.size[-1]) > SHORT_ROW:
            return None
        strides = contiguous_strides([box.size[dim] for dim in order])
        return tuple(strides[order.index(dim)] for dim in range(box.rank))

    # Conversions ---------------------------------------------------------------------------------

    def argument(self, argument: Any) -> Any:
        """Nodes replaced by their values; lists become Python lists."""
        if isinstance(argument, fx.Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self.argument(item) for item in argument]
        return argument

    def number(self, value: Any) -> Any:
        match value:
            case torch.SymInt():
                return self.builder.sizes.index(value)
            case torch.SymFloat():
                return self.builder.sizes.real(value)
        return value

    def layout(self, value: torch.Tensor | Opaque, node: fx.Node) -> Layout:
        """The layout of a fake tensor, its data taken to begin at its first element; that of an
        opaque value.
        """
        if isinstance(value, Opaque):
            return OPAQUE
        key = (value.dtype, value.shape, value.stride(), value.device)
        try:
            layout = self.layouts.get(key)
        except TypeError:  # Symbolic sizes do not hash.
            return self._make_layout(value, node)
        if layout is None:
            layout = self.layouts[key] = self._make_layout(value, node)
        return layout

    def _make_layout(self, value: torch.Tensor, node: fx.Node) -> Layout:
        try:
            dtype = from_torch(value.dtype)
        except KeyError as error:
            raise Unsupported(f"a tensor of type {error.args[0]}", _location(node)) from None
        return Layout(
            dtype=dtype,
            size=self.builder.sizes.indices(value.shape),
            stride=self.builder.sizes.indices(value.stride()),
            device=str(value.device),
        )


def _in_one_memory(storage: Storage, other: Storage) -> bool:
    """Whether two storages are the same, or lie in one buffer."""
    return storage is other or (storage.buffer is not None and storage.buffer == other.buffer)


def _viewed(node: fx.Node) -> fx.Node:
    """The first argument of `node`, or what it is a view of."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    while source.target is operator.getitem or str(source.target) in VIEWS:
        assert isinstance(source.args[0], fx.Node)
        source = source.args[0]
    return source


def picks_by(arguments: Iterable[Any]) -> bool:
    """Whether there are indices among the arguments of an operator, which eager's kernel may look
    at though its result has no elements.
    """
    boxes = [argument for argument in arguments if isinstance(argument, Box)]
    return any(box.dtype.is_integer and integer(0) not in box.size for box in boxes)


def is_sized_by_data(target: Any, arguments: Iterable[Any]) -> bool:
    """Whether data decides the size of an operator's result: what a program promises of it, such as
    that there are no elements, holds only once the operator has run.
    """
    if torch.Tag.dynamic_output_shape not in getattr(target, "tags", ()):
        return False
    boxes = [
        one
        for argument in arguments
        for one in (argument if isinstance(argument, (list, tuple)) else (argument,))
        if isinstance(one, Box)
    ]
    picking = boxes[1:] or boxes  # What is picked from does not tell how much is.
    return any(integer(0) not in box.size for box in picking)


def is_nothing(call: Call, meta: Any) -> bool:
    """Whether the results have no elements: nothing need be read, and no maximum of nothing taken.

    Views of something without elements share memory all the same.
    """
    results = len(meta) if isinstance(meta, (tuple, list)) else 1
    unknown = call.builder.sizes.unknown
    if unknown and any(str(size) in unknown for layout in call.results for size in layout.size):
        return False
    return (
        call.operator not in VIEWS
        and 0 < len(call.results) == results
        and not _is_foreign(*call.results)
        and all(0 in layout.size for layout in call.results)
    )


def count_readers(graph: fx.Graph) -> dict[fx.Node, Readers]:
    """The number of operators that read each node (through views), and whether any needs it in
    memory.
    """
    counts: dict[fx.Node, Readers] = {}
    names = _Names()
    for node in reversed(graph.nodes):
        readers, in_memory = 0, False
        for user in node.users:
            name = names[user.target]
            if user.target is operator.getitem or name in VIEWS:
                through, needed = counts[user]
                readers += through
                in_memory |= needed
            else:
                readers += 1
                in_memory |= name not in RULES
        counts[node] = readers, in_memory
    return counts


class _Names(dict[Callable[..., Any], str]):
    """Names of operators, each made once."""

    def __missing__(self, target: Callable[..., Any]) -> str:
        self[target] = name = str(target)
        return name


def _flat(items: Any) -> Iterable[Any]:
    return items if isinstance(items, (tuple, list)) else (items,)


def _location(node: fx.Node) -> Location | None:
    return node.meta.get("location")


def _origin(name: str, node: fx.Node) -> Origin:
    location = _location(node)
    module_path = node.meta.get("module_path", "")
    if location is None:
        return Origin(name, module_path=module_path)
    return Origin(name, location.file, location.line, location.text, module_path)


def _is_foreign(*items: Box | Layout) -> bool:
    """Whether no kernel computes with one of these: types that it does not hold, and tensors
    without memory.
    """
    return any(not item.dtype.is_computed or item.device == "meta" for item in items)


def _any_foreign(arguments: Iterable[Any]) -> bool:
    return any(
        _is_foreign(argument)
        if isinstance(argument, Box)
        else isinstance(argument, complex)
        or (isinstance(argument, list) and _any_foreign(argument))
        for argument in arguments
    )
