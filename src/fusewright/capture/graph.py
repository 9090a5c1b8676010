"""The torch-level graph under construction: calls of torch functions as nodes, each with the fake
of its result.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, cast

import torch
from torch import fx

from fusewright import recurrent, torch_compat
from fusewright.capture.sizes import SymbolicShape
from fusewright.containers import tensors
from fusewright.errors import DataDependent, FusewrightError, UnsupportedOperator
from fusewright.fake import FakeMode, FakeTensor
from fusewright.fake.graph_writes import may_write_inputs
from fusewright.fake.known_values import FollowingValues, computes_only
from fusewright.fake.tensor import set_node
from fusewright.ir.index import RealSymbol, Symbol
from fusewright.operators import is_of_torch
from fusewright.records import record
from fusewright.symbolic.facts import Required, ShapeFacts
from fusewright.symbolic.graph_nodes import NumberNodes
from fusewright.symbolic.nodes import (
    free_symbols,
    index_of,
    known_numbers,
    symbolic_float,
    symbolic_int,
)
from fusewright.torch_compat.graph_modules import GraphModule

_DEVICE_CONSTRUCTORS: Final = torch_compat.states.device_constructors()

_NO_FAKE: Final = (
    "the operator has no fake implementation: torch.library.register_fake takes a function that "
    "says what its results are like"
)

_NEEDS_DATA: Final = (
    ("data is not allocated yet", "it reads a tensor's data in C++"),
    ("Cannot access data pointer", "it reads a tensor's data in C++"),
    ("Cannot copy out of meta tensor", "it reads a tensor's data in C++"),
    (" meta ", "it looks at whether a tensor has data"),
    ("already associated to a python object", "its result is of a class of its own"),
    ("_nested_tensor_from_tensor_list", "its result is nested"),
    ("There was no fake impl registered", _NO_FAKE),
)
"""Part of the text of errors from C++ given tensors without data, and what they mean."""


def why_not_on_fakes(error: RuntimeError) -> str | None:
    """Why a call that raised `error` cannot be run on tensors without data; None where the error is
    the program's own.
    """
    text = str(error)
    return next((meaning for part, meaning in _NEEDS_DATA if part in text), None)


def is_graph_function(function: Any) -> bool:
    """Whether a callable computes tensors from tensors and belongs in the graph as one call."""
    if isinstance(function, types.BuiltinFunctionType):
        return torch_compat.is_operator_in_c(function)
    if isinstance(function, types.FunctionType):
        return function.__module__ in torch_compat.GRAPH_MODULES
    return isinstance(function, torch_compat.OPERATOR_TYPES)


def is_custom_operator(function: Any) -> bool:
    """Whether a callable is an operator that is not torch's own."""
    is_operator = isinstance(function, torch_compat.OPERATOR_TYPES)
    return is_operator and not is_of_torch(str(function))


def is_tensor_method(function: Any) -> bool:
    """Whether a callable is a method of tensors, not bound to one: written in C, or in torch's own
    Python.
    """
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
        return issubclass(torch.Tensor, function.__objclass__)
    return isinstance(function, types.FunctionType) and function.__module__ == "torch._tensor"


@record(kw_only=True)
class Permissions:
    """Contents that a graph may have unless they were found to conflict with the rest of the graph:
    the call is then traced again without.
    """

    checks: bool = True
    """Calls that raise where a tensor is not true."""

    copies: bool = True
    """Copies where eager has views, or has them for some data: items of tensors by tensors, and
    reshaped tensors whose sizes depend on data.
    """

    leaves: bool = True
    """Tensors that begin a history of their own: `requires_grad_()`."""

    hooks: bool = True
    """Hooks on gradients of the graph's tensors: `register_hook()`."""


ALL_ALLOWED: Final = Permissions()
_NONE: Final = Permissions(checks=False, copies=False, leaves=False, hooks=False)


READS_ON_ITS_WAY: Final = "it reads a number from a tensor on its way"


class GraphBuilder:
    """Grows an `fx.Graph`, running each call on fake tensors as it is added."""

    def __init__(self, facts: ShapeFacts, permissions: Permissions) -> None:
        self.facts = facts
        self.graph = fx.Graph()
        self.mode = FakeMode()
        self.mode.asks_eager = True
        self.symbols: dict[str, fx.Node] = {}
        """The placeholders of symbolic sizes, by the symbols' names; they come first."""
        self.numbers = NumberNodes(self.graph, self._add_symbol)
        self._unknown: dict[str, tuple[fx.Node, int]] = {}
        """The tensor and dimension that have a symbol which depends on data, by its name."""

        self.permissions = permissions
        self.has_checks = False
        """Whether there are calls that raise where a tensor is not true."""

        self.copies: list[tuple[FakeTensor, FakeTensor]] = []
        """The tensors that are copied where eager may have views, and the copies."""

        self.leaves: list[torch.Tensor] = []
        """Tensors on which the graph calls `requires_grad_()`."""

        self.hooked: list[torch.Tensor] = []
        """Tensors on which the graph calls `register_hook()`."""

        self.checkpoint: int | None = None
        """The checkpointed region that calls are added to: a number of its own; None outside."""

        self.readers: dict[fx.Node, Callable[[], torch.Tensor | None]] = {}
        """The function that gives the value of an input, and guards it, where that may be looked at
        while tracing.
        """

        self._last_placeholder: fx.Node | None = None

    def add_input(
        self, name: str, tensor: torch.Tensor, shape: SymbolicShape | None = None
    ) -> tuple[fx.Node, FakeTensor]:
        """A placeholder for a tensor that exists."""
        fake = fake_input(self.mode, tensor, shape)
        node = self._placeholder(name, self._last_placeholder or self._last_symbol())
        self._last_placeholder = node
        node.meta["val"] = fake
        set_node(fake, node)
        return node, fake

    def _last_symbol(self) -> fx.Node | None:
        return next(reversed(self.symbols.values()), None)

    def _add_symbol(self, symbol: Symbol) -> fx.Node | None:
        """The placeholder of a symbolic size. Its symbol may have got narrower bounds meanwhile.
        None: it depends on data that no node of the graph holds, since it is a size in the midst of
        one call.
        """
        placeholder = self.symbols.get(symbol.name)
        if placeholder is not None:
            return placeholder
        if symbol.name in self._unknown:
            found = self._unknown[symbol.name]
            with self.graph.inserting_after(found[0]):  # the program may have changed it since
                return self.graph.call_function(torch.ops.aten.sym_size.int, found)
        if self.facts.is_of_data(symbol):
            return None
        node = self._placeholder(symbol.name, self._last_symbol())
        facts = self.facts
        node.meta["val"] = (
            symbolic_float(facts, symbol)
            if isinstance(symbol, RealSymbol)
            else symbolic_int(facts, symbol.index)
        )
        self.symbols[symbol.name] = node
        return node

    def release(self) -> None:
        """Let go of what would keep the graph in a reference cycle."""
        self.numbers = NumberNodes(self.graph)
        self.readers.clear()

    def add_sizes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Add placeholders for all symbols in the sizes and strides of these fakes, by which
        compiled code receives their values.
        """
        for fake in tensors:
            for number in (*fake.shape, *fake.stride()):
                if isinstance(number, torch.SymInt):
                    for symbol in sorted(index_of(number).free(), key=str):
                        self._add_symbol(symbol)

    def _placeholder(self, name: str, last: fx.Node | None) -> fx.Node:
        """A new placeholder after `last`, or before everything."""
        graph = self.graph
        if last is not None:
            position = graph.inserting_after(last)
        else:
            position = graph.inserting_before(next(iter(graph.nodes), None))
        with position:
            node = graph.placeholder(name)
        node.target = node.name  # which is unique, where two inputs would be called alike
        return node

    def examples(
        self, tensors: Sequence[torch.Tensor], shapes: Sequence[SymbolicShape | None]
    ) -> tuple[Any, ...]:
        """Examples of the graph's inputs for a compiler: the tensors themselves; where sizes are
        symbolic, these and new fakes.
        """
        if not self.symbols:
            return tuple(tensors)
        mode = FakeMode(self.facts)
        return (
            *(node.meta["val"] for node in self.symbols.values()),
            *(fake_input(mode, *pair) for pair in zip(tensors, shapes, strict=True)),
        )

    def note_copy(self, original: torch.Tensor, copy: torch.Tensor) -> None:
        """Note that in place of `copy` eager may have a view of `original`."""
        pair = torch_compat.unwrapped(original), torch_compat.unwrapped(copy)
        self.copies.append(cast("tuple[FakeTensor, FakeTensor]", pair))

    def run(self, function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """The result of a call on fakes. A string as function names a method of the first argument.

        Raises DataDependent and UnsupportedOperator, NeedsConstants where it is symbols that may be
        the cause; whatever else is raised is the program's own mistake.
        """
        self.facts.of_call = function is not torch_compat.check
        try:
            return self._run(function, arguments, keywords, self.running_on_fakes())
        except DataDependent:
            if not computes_only(function):
                raise
            return self._run(function, arguments, keywords, FollowingValues(self.mode))
        except Exception as error:
            look_for_symbols(self.facts, [*arguments, *keywords.values()], error)
            raise
        finally:
            self.facts.of_call = False

    def _refuse_lost_integers(self, result: Any) -> None:
        """Raise DataDependent where a call has read an integer on its way that neither is its
        result nor a size of it, as `torch.narrow` does from a tensor: no node would tell it.
        """
        if isinstance(result, torch.SymInt) or not self.mode.integers_read:
            return
        sizes = {index_of(size) for tensor in tensors(result) for size in tensor.shape}
        if not sizes.issuperset(self.mode.integers_read):
            raise DataDependent(READS_ON_ITS_WAY)

    def _run(
        self,
        function: Any,
        arguments: Sequence[Any],
        keywords: dict[str, Any],
        context: AbstractContextManager[Any],
    ) -> Any:
        self.mode.integers_read.clear()
        with context:
            try:
                if isinstance(function, str):
                    function, arguments = getattr(arguments[0], function), arguments[1:]
                elif function in recurrent.STEPS and recurrent.is_loop(function, arguments):
                    run_layer = recurrent.by(function, recurrent.on_fakes)
                    function, arguments = recurrent.recurrent, (function, run_layer, *arguments)
                result = self.mode.call(function, arguments, keywords)
            except Required as error:
                if not self.mode.integers_read:
                    raise
                raise DataDependent(READS_ON_ITS_WAY) from error
            except NotImplementedError as error:
                raise UnsupportedOperator(str(error)) from error
            except RuntimeError as error:
                why = why_not_on_fakes(error)
                if why is None:
                    raise
                raise DataDependent(why) from error
        self._refuse_lost_integers(result)
        return result

    def running_on_fakes(self) -> AbstractContextManager[Any]:
        """Context of a call: in it, torch makes fakes."""
        return self.mode

    def add_call(
        self,
        function: Any,
        arguments: Sequence[Any],
        keywords: dict[str, Any],
        value: Any,
        describe: Callable[[fx.Node], None],
    ) -> fx.Node:
        """A node for a call whose result on fakes is `value`; `describe` says its origin.

        A tensor made on the default device is made on that device by name, whatever the default is
        when the graph runs.
        """
        makes_tensor = function in _DEVICE_CONSTRUCTORS and keywords.get("device") is None
        if makes_tensor and torch_compat.states.function_modes():
            keywords = {**keywords, "device": value.device}
        kind = "call_method" if isinstance(function, str) else "call_function"
        node = self.graph.create_node(kind, function, tuple(arguments), keywords)
        node.meta["val"] = value
        set_node([fake for fake in tensors(value) if getattr(fake, "node", None) is None], node)
        describe(node)
        if self.checkpoint is not None:
            node.meta["checkpoint"] = self.checkpoint
        self._define_unknown(node, value)
        return node

    def _define_unknown(self, node: fx.Node, value: Any) -> None:
        """Note where a size or number that depends on data comes from."""
        if not self.mode.allows_unknown_sizes:
            return
        if isinstance(value, torch.SymInt):
            self.numbers.define(index_of(value), node)
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            for symbol in index_of(size).free():
                if self.facts.is_of_data(symbol) and index_of(size) == symbol.index:
                    self._unknown.setdefault(symbol.name, (node, dim))

    def can_use(self, node: fx.Node) -> bool:
        """Whether a node belongs to this graph, or to one around it."""
        return node.graph is self.graph

    def own(self, node: fx.Node) -> fx.Node:
        """A node that it can use, as calls of this graph take it."""
        return node


class SubgraphBuilder(GraphBuilder):
    """Grows the graph of a function inside the program. What it reads from outside is an input of
    its graph, after its arguments.
    """

    def __init__(self, parent: GraphBuilder) -> None:
        super().__init__(parent.facts, _NONE)
        self.mode = parent.mode
        self.lifted: dict[fx.Node, fx.Node] = {}
        """The input for each node of the graph around."""

        self._parent = parent
        self._last_argument: fx.Node | None = None

    def add_argument(self, fake: torch.Tensor) -> fx.Node:
        """An input for a tensor that the function is given."""
        self._last_argument = node = self._placeholder("argument", self._last_argument)
        node.meta["val"] = fake
        return node

    def add_input(
        self, name: str, tensor: torch.Tensor, shape: SymbolicShape | None = None
    ) -> tuple[fx.Node, FakeTensor]:
        with torch_compat.outside_transforms():
            return self._parent.add_input(name, tensor, shape)

    def _add_symbol(self, symbol: Symbol) -> fx.Node | None:
        node = self._parent._add_symbol(symbol)
        return None if node is None else self.own(node)

    def running_on_fakes(self) -> AbstractContextManager[Any]:
        """The function is traced while the call runs that it is given to."""
        return nullcontext()

    def can_use(self, node: fx.Node) -> bool:
        return super().can_use(node) or self._parent.can_use(node)

    def own(self, node: fx.Node) -> fx.Node:
        if node.graph is self.graph:
            return node
        outer = self._parent.own(node)
        placeholder = self.lifted.get(outer)
        if placeholder is None:
            last = next(reversed(self.lifted.values()), self._last_argument)
            placeholder = self.lifted[outer] = self._placeholder(outer.name, last)
            placeholder.meta["val"] = outer.meta["val"]
        return placeholder

    def may_write_outside(self) -> bool:
        """Whether the function may write to what it reads from outside, or is given."""
        return may_write_inputs(self.graph)

    def module(self) -> fx.GraphModule:
        """The finished graph. Its fakes belong to the transform that made them, and go."""
        for node in self.graph.nodes:
            node.meta.pop("val", None)
        return GraphModule({}, self.graph)


class NeedsConstants(FusewrightError):
    """A call failed on symbolic sizes: it may be that it takes none."""

    def __init__(self, symbols: frozenset[Symbol]) -> None:
        self.symbols = symbols
        super().__init__("a call takes no symbolic sizes")


def look_for_symbols(facts: ShapeFacts, arguments: Sequence[Any], error: Exception) -> None:
    """Raise NeedsConstants where symbols among a call's arguments may be the cause of its `error`,
    DataDependent where none of these can be taken as a constant.
    """
    symbols = symbols_in(arguments)
    constants = frozenset(symbol for symbol in symbols if not facts.is_of_data(symbol))
    if constants:
        raise NeedsConstants(constants) from error
    if symbols:
        what = f"given sizes that depend on data it raises {type(error).__name__}: {error}"
        raise DataDependent(what) from error


def symbols_in(value: Any) -> frozenset[Symbol]:
    """The symbols in the sizes and strides of fakes, and in symbolic numbers."""
    match value:
        case torch.Tensor():
            return symbols_in((*value.shape, *value.stride()))
        case torch.SymInt() | torch.SymFloat():
            return free_symbols(value)
        case list() | tuple():
            return frozenset().union(*map(symbols_in, value))
        case dict():
            return symbols_in(list(value.values()))
        case slice():
            return symbols_in((value.start, value.stop, value.step))
    return frozenset()


def fake_input(mode: FakeMode, tensor: torch.Tensor, shape: SymbolicShape | None) -> FakeTensor:
    """The fake of a graph's input, with what is known of its symbolic sizes by now."""
    if shape is None:
        return mode.fake_input(tensor)
    sizes: Any
    strides: Any
    sizes, strides = (known_numbers(numbers) for numbers in (shape.sizes, shape.strides))
    return mode.fake_input(tensor, sizes, strides)


def contains_tensor(result: Any) -> bool:
    """Whether the result of a call on fakes has a tensor in it."""
    match result:
        case torch.Tensor():
            return True
        case tuple() | list():
            return any(contains_tensor(item) for item in result)
        case dict():
            return any(contains_tensor(item) for item in result.values())
        case _:
            return False


FAKE_FAILURES: Final = (DataDependent, UnsupportedOperator)
"""Exceptions that running on fakes raises when the data would be needed, or torch cannot tell the
result's sizes.
"""
