"""The machine that executes a traced program: it owns the graph, the guards, the side effects and
the stack of frames.

What an object is, is decided in `wrapping`; what an operator does in `operators`; how attributes
bind in `attributes`; what an instruction does in `instructions`.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NoReturn

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.graph import ALL_ALLOWED, GraphBuilder, Permissions
from fusewright.capture.guards import Guard, GuardKind, Kind, TensorPattern, has_memory
from fusewright.capture.handlers.registry import enter_imported
from fusewright.capture.interpreter import (
    attributes,
    calls,
    holding,
    operators,
    stand_ins,
    subprograms,
    tensor_calls,
)
from fusewright.capture.interpreter.attribute_dictionaries import AttributeDictionaries
from fusewright.capture.interpreter.class_lookup import ClassLookup
from fusewright.capture.interpreter.frame import DecodedCodes, Frame
from fusewright.capture.interpreter.generator_frame import GeneratorFrame
from fusewright.capture.interpreter.instructions import OPCODES, unknown_opcode
from fusewright.capture.interpreter.keys import Keys
from fusewright.capture.interpreter.namespaces import Namespaces
from fusewright.capture.interpreter.wrapping import IDENTITY_TYPES, new_value, wrap_object
from fusewright.capture.reasons import Reason
from fusewright.capture.sizes import SizeHistory, Sizes, SymbolicShape
from fusewright.capture.sources import (
    ConstantSource,
    DictItemSource,
    GlobalSource,
    InstanceSource,
    NumberSource,
    Source,
    identifier,
    module_name,
)
from fusewright.capture.values.base import MISSING, NotConstant, TracedError, Value
from fusewright.capture.values.classes import ClassNamespace, MadeValue
from fusewright.capture.values.constant import (
    NONE,
    SCALAR_TYPES,
    ConstantValue,
    is_constant,
)
from fusewright.capture.values.functions import (
    CellValue,
    FunctionValue,
    Namespace,
)
from fusewright.capture.values.iterators import IteratorValue
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.modules import ModuleValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.objects import ExceptionValue, ObjectValue
from fusewright.capture.values.regions import IndexRegionValue, InferenceRegionValue
from fusewright.capture.values.sequences import ListValue, SequenceValue, TupleValue
from fusewright.capture.values.tensors import ForeignTensorValue, TensorValue
from fusewright.errors import DataDependent, Location, TracedCall, Unsupported
from fusewright.interrupts import INTERRUPTS
from fusewright.records import record
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import SYMBOLIC

DEPTH_LIMIT: Final = 200
"""Calls that may nest; each takes about ten frames of the Python that interprets it."""

_LIBRARY_DIRECTORIES: Final = (
    torch.__path__[0],
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
)
"""Directories of torch's own Python and ours, which are never named as the place of an error."""

_DECODED: Final = DecodedCodes(OPCODES, unknown_opcode)

_FORWARD_LEVEL: Final = GlobalSource("_current_level", "torch.autograd.forward_ad")
"""The variable in which torch keeps `torch_compat.forward_level()`. Graphs lose the tangents of
forward differentiation, so tensors that have one are no inputs.
"""


@record
class WithFinalizer:
    """An object that the program made while traced, whose class has `__del__`."""

    value: Value
    made_at: int
    """The number of instructions that the outermost frame had executed then."""

    place: Location | None


class Machine:
    """One capture of one frame."""

    longest: ClassVar = 1_000_000
    """The number of instructions executed at most, in a second or a few: twelve layers of BERT take
    14,000, a step of Adam for 400 parameters 125,000.
    """

    new = new_value
    bind = attributes.bind
    call_object = calls.call_object
    inline = calls.inline
    is_held = holding.is_held
    construct = calls.construct
    import_module = calls.import_module
    call_with_subprograms = subprograms.call_with_subprograms
    call_tensor_method = tensor_calls.call_method
    tensor_metadata = tensor_calls.metadata
    binary = operators.binary
    compare = operators.compare
    contains = operators.contains
    equal = operators.equal
    get_item = operators.get_item
    identical = operators.identical
    items = operators.items
    iterate = operators.iterate
    length = operators.length
    next = operators.next_item
    truth = operators.truth
    unary = operators.unary

    def __init__(
        self,
        root_globals: dict[str, Any],
        history: SizeHistory | None = None,
        permissions: Permissions = ALL_ALLOWED,
    ) -> None:
        enter_imported()
        self.builder = GraphBuilder(ShapeFacts(self.location), permissions)
        facts = self.builder.facts
        use_facts = functools.partial(self.builder.mode.use_facts, facts)
        self.sizes = Sizes(history or SizeHistory(False), facts, use_facts)
        if any(self.sizes.history.of_data):
            self.builder.mode.allow_of_data(facts, self.sizes.history.of_data)
        self.guards: dict[tuple[Kind, Source | None, Any], Guard] = {}
        self.inputs: list[TensorValue] = []
        self.restrided: dict[int, Unsupported | None] = {}
        """Storages of inputs in which the program counts from the beginning, by their keys: the
        refusal of a write there, or None.
        """

        self.shapes: list[SymbolicShape | None] = []
        """The shape of each input; None where no size of it is symbolic."""
        self.mutated: dict[int, Any] = {}
        """Existing objects that the program changed, in order of first change."""
        self.draws: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        """Calls in compiled code that leave random generators where tracing left its own."""
        self.frames: list[Frame] = []
        self.steps_left = self.longest
        """The number of instructions that may still be executed."""
        self.generators: list[GeneratorFrame] = []
        """Frames of the generators that the program made."""
        self.finalizers: list[WithFinalizer] = []
        """Objects made by the program, besides generators, whose end runs code."""
        self.regions: list[InferenceRegionValue | IndexRegionValue] = []
        self.root: Frame | None = None
        """The outermost frame, once it runs."""
        self.may_return = False
        self.keeps_numbers = False
        """Whether something in the graph stands inside a `try` or `with` of the program, or checks
        more than eager always needs.
        """
        self.handled: Value | None = None
        """The exception that the traced program is handling."""
        self._values: dict[int, Value] = {}
        self._cells: dict[int, CellValue] = {}
        self._alive: list[Any] = []
        self.classes = ClassLookup(self)
        self.dictionaries = AttributeDictionaries(self)
        self.keys = Keys(self)
        self.namespaces = Namespaces(self, root_globals)
        self.tensors: dict[int, TensorValue] = {}
        """Tensors of the graph by the identity of their fakes."""
        self._constants: list[ConstantValue] = []
        """Constants that have a source, and no guard until they are looked at."""
        self._locations: dict[tuple[str, int], Location] = {}
        self._texts: dict[tuple[str, int, str], str] = {}
        """Lines of functions as a traceback prints them, by file, line number and function."""
        self.guard(GuardKind.GLOBAL_STATE, None)
        self.guard(GuardKind.EQUALS, _FORWARD_LEVEL, torch_compat.forward_level())

    # -- where we are ----------------------------------------------------------------------------

    def location(self) -> Location | None:
        """The line being executed, in the innermost frame that is not torch's own; after the end,
        the last line of the outermost.
        """
        for frame in reversed(self.frames):
            if not frame.code.co_filename.startswith(_LIBRARY_DIRECTORIES):
                return self._frame_location(frame)
        last = self.frames[-1] if self.frames else self.root
        return None if last is None else self._frame_location(last)

    def _frame_location(self, frame: Frame) -> Location:
        key = (frame.code.co_filename, frame.line)
        location = self._locations.get(key)
        if location is None:
            text = linecache.getline(*key).strip()
            location = self._locations[key] = Location(*key, text)
        return location

    def stack_trace(self) -> str:
        """The traced program's stack as a traceback prints it, outermost frame first."""
        return "".join([self._frame_text(frame) for frame in self.frames])

    def _frame_text(self, frame: Frame) -> str:
        key = (frame.code.co_filename, frame.line, frame.code.co_name)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = str(self._call(frame))
        return text

    def _call(self, frame: Frame) -> TracedCall:
        place = self._frame_location(frame)
        return TracedCall(frame.code, place, frame.position - 1, frame.executed - 1)

    def unsupported(self, reason: Reason, **details: object) -> Unsupported:
        """The error for what cannot be captured, at the line of the user; the caller raises it."""
        text, calls = reason.text(**details), [self._call(frame) for frame in self.frames]
        if isinstance(self.handled, ExceptionValue):  # It may be all that the user has to mend.
            text += f"\n  an exception is being handled there: {self.handled.describe_origin()}"
        return Unsupported(text, self.location(), reason.remedy, reason.name, calls)

    def failure(self, error: Exception) -> Unsupported:
        """The graph break that an exception of the machine's own becomes."""
        match error:
            case Unsupported():
                return error
            case NotConstant(args=[Value() as value, *_]):
                return self.unsupported(reasons.NOT_KNOWN, object=value.describe())
            case DataDependent():
                text = "an integer that the data tells"
                return self.unsupported(reasons.FAKE_EXECUTION, function=text, detail=error)
            case RecursionError():
                return self.unsupported(reasons.TOO_NESTED)
            case _:
                text = f"{type(error).__name__}: {error}"
                return self.unsupported(reasons.INTERNAL_ERROR, error=text)

    def raise_error(self, kind: type[BaseException], *arguments: object) -> NoReturn:
        """Raise an exception in the traced program."""
        values = [
            argument
            if isinstance(argument, Value)
            else new_value(self, argument)
            if is_constant(argument)
            else ConstantValue(str(argument))
            for argument in arguments
        ]
        error = ExceptionValue(kind, values)
        error.follow(self)
        raise TracedError(error)

    def guard(self, kind: Kind, source: Source | None, expected: Any = None) -> None:
        """Let the captured code be reused only while this holds."""
        if self.classes.is_of_made(source):
            return
        if kind is GuardKind.TENSOR:
            key: tuple[Kind, Source | None, Any] = (kind, source, None)
        else:
            key = (kind, source, _guard_key(expected))
        if key not in self.guards:
            self.guards[key] = Guard(kind, source, expected, self.location())

    def guard_distinct(self) -> None:
        """Guard that objects which are different now stay so, where it matters: tensors, what the
        program changes, and keys.
        """
        for constant in self._constants:
            if constant.is_unread:
                self.guard(GuardKind.PRESENT, constant.source)
        mutable = ObjectValue | IteratorValue
        changed = {value.cls for value in self.mutated.values() if isinstance(value, mutable)}
        groups: dict[type, list[Source]] = {}
        for value in self._values.values():
            source = value.source
            if source is None or isinstance(source, ConstantSource):
                continue
            if isinstance(value, TensorValue):
                if not (value.is_observed or value.is_used_input):
                    self.guard(GuardKind.PRESENT, source)
                    continue
                if not value.is_used_input:
                    self.guard(GuardKind.TYPE, source, value.cls)
                groups.setdefault(torch.Tensor, []).append(source)
            elif isinstance(value, mutable) and value.cls in changed:
                groups.setdefault(value.cls, []).append(source)
        for sources in groups.values():
            if len(sources) > 1:
                self.guard(GuardKind.DISTINCT, None, tuple(sources))
        self.keys.guard()
        self.dictionaries.guard_apart(
            [value for value in self._values.values() if isinstance(value, DictValue)]
        )

    def release(self) -> None:
        """Let go of the objects met, so that none lives on in a reference cycle: of the machine's
        own, or of an exception that passed through its frames.
        """
        while self.regions:
            self.regions.pop().leave()
        for value in self._values.values():
            if isinstance(value, ObjectValue):
                value.forget()
        for table in (self._values, self._cells, self.tensors, self.mutated, self.guards):
            table.clear()
        for entries in (self._alive, self._constants, self.inputs, self.frames):
            entries.clear()
        self.root = None
        self.builder.release()
        self.sizes.release()
        self.classes.release()
        self.dictionaries.release()
        self.keys.release()
        self.namespaces.release()

    # -- objects and values ----------------------------------------------------------------------

    def wrap(self, object: Any, source: Source) -> Value:
        """The value of an object that exists, read from `source`; one for each object."""
        if is_constant(object):
            if isinstance(source, ConstantSource):
                return new_value(self, object)
            if isinstance(object, tuple):
                if self.sizes.has_varying_number(object, source):
                    return wrap_object(self, object, source)
                self.guard(GuardKind.EQUALS, source, object)
                return new_value(self, object)
            constant = self._constant(object, source)
            self._constants.append(constant)
            return constant
        value = self._values.get(id(object))
        if value is None:
            value = wrap_object(self, object, source)
            self._values[id(object)] = value
            self._alive.append(object)
            if isinstance(value, DictValue):
                self.dictionaries.meet(value)
        elif value.source != source and not isinstance(source, ConstantSource):
            if isinstance(object, IDENTITY_TYPES):
                self.guard(GuardKind.IDENTITY, source, object)
            elif value.source is not None and not isinstance(value.source, ConstantSource):
                self.guard(GuardKind.SAME, source, value.source)
        return value

    def _constant(self, object: Any, source: Source) -> ConstantValue:
        """An immutable object that was read, guarded when it is looked at; a number that varies
        becomes a symbol then. One that is left open breaks the graph.
        """
        if self.sizes.history.is_left_open(object, source):
            return ConstantValue(object, source, functools.partial(self._refuse_to_look, source))
        if type(object) in (int, float):
            if self.sizes.may_vary(object, source):

                def make() -> Any:
                    number = self.sizes.number(object, source)
                    if isinstance(number, SYMBOLIC):
                        self.guard(GuardKind.TYPE, source, type(object))
                    else:
                        self.guard(GuardKind.EQUALS, source, object)
                    return number

                return SymbolicValue(source=source, make=make)

            def look() -> None:
                self.sizes.number(object, source)
                self.guard(GuardKind.EQUALS, source, object)

            return ConstantValue(object, source, look)
        return ConstantValue(object, source, lambda: self.guard(GuardKind.EQUALS, source, object))

    def _refuse_to_look(self, source: Source) -> None:
        raise self.unsupported(reasons.VARYING_VALUE, source=source.expression())

    def known_value(self, object: Any) -> Value | None:
        """The value of an existing object that was met before, or None."""
        return NONE if object is None else self._values.get(id(object))

    def new_tuple(self, items: Sequence[Value], cls: type = tuple) -> Value:
        """A tuple of values, or an instance of a subclass of tuple."""
        return TupleValue(cls, items)

    def new_list(self, items: Sequence[Value]) -> Value:
        """A new list of values."""
        return ListValue(list, items)

    def new_dict(self, items: dict[str, Value]) -> Value:
        """A new dict with strings as keys."""
        result = DictValue(dict)
        for key, value in items.items():
            result.put(self, ConstantValue(key), value)
        return result

    def cell(self, cell: Any, source: Source | None) -> CellValue:
        """The value of an existing closure cell; always the same for one cell."""
        value = self._cells.get(id(cell))
        if value is None:
            value = self._cells[id(cell)] = CellValue(cell=cell, source=source)
            self._alive.append(cell)
        return value

    def record_mutation(self, value: Any) -> None:
        """Say that an object is about to change, so that the change is replayed after the graph."""
        if isinstance(value, Namespace | ClassNamespace) or value.real() is not MISSING:
            self.mutated.setdefault(id(value), value)

    def note_finalizer(self, value: Value) -> None:
        """Note that the program has made an object that runs code when it is dropped."""
        executed = 0 if self.root is None else self.root.executed
        self.finalizers.append(WithFinalizer(value, executed, self.location()))

    def hash_key(self, value: Value) -> Hashable:
        """The hashable for a value in a dict or set. Raises TypeError in the program for none."""
        if isinstance(value, TupleValue):
            self.read_all([value])
        self.keys.note(value)
        try:
            key = value.key()
            hash(key)
        except TypeError as error:
            self.raise_error(TypeError, *error.args)
        except NotImplementedError:
            return self._stand_in_key(value)
        return key

    def _stand_in_key(self, value: Value) -> Hashable:
        """A stand-in for a key whose class says itself what equals it and what its hash is."""
        key: Hashable = stand_ins.element(self, value)
        if type(key).__hash__ is None:
            try:
                hash(key)
            except TypeError as error:
                self.raise_error(TypeError, *error.args)
        return key

    # -- attributes ------------------------------------------------------------------------------

    def class_attribute(self, cls: type, name: str) -> tuple[Any, Source | None]:
        """The attribute of the class or a base, unbound (or MISSING), and its source; guarded."""
        return self.classes.attribute(cls, name)

    def note_made(self, object: Any, recipe: Value | None) -> None:
        """Say that a class, or something in one, was made while tracing: no guard names it.
        `recipe` is what generated code makes in its place; None where all calls may use this one.
        """
        self.classes.note_made(object, recipe)
        if recipe is not None and not isinstance(recipe, MadeValue):
            self._values[id(object)] = recipe

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`, with `__getattribute__` and `__getattr__`. Raises TracedError."""
        return value.get_attribute(self, name)

    def attribute_or_none(self, value: Value, name: str) -> Value | None:
        """`value.name`, or None when that raises AttributeError."""
        try:
            return value.get_attribute(self, name)
        except TracedError as error:
            if error.is_caught_as(AttributeError):
                return None
            raise

    def set_attribute(self, value: Value, name: str, new: Value) -> None:
        """`value.name = new`, with `__setattr__`."""
        if isinstance(value, ConstantValue) and type(value.value) in SCALAR_TYPES:
            stand_ins.raise_as(self, _setattr_none, value, ConstantValue(name))
        value.set_attribute(self, name, new)

    def special(self, value: Value, name: str) -> Value | None:
        """The special method `name` of the value's class, bound to it; None when the class has
        none.
        """
        cls = value.python_type()
        raw, source = self.class_attribute(cls, name)
        if raw is MISSING or raw is None:
            return None
        if isinstance(value, TensorValue | ForeignTensorValue):
            return value.get_attribute(self, name)
        return self.bind(raw, source, value, cls)

    def call_special(
        self,
        value: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value] | None = None,
    ) -> Value:
        """Call a special method. Raises TypeError in the traced program when the class has none."""
        method = self.special(value, name)
        if method is None:
            stand_ins.raise_as(self, operators.OPERATIONS[name], value, *arguments)
        return method.call(self, arguments, keywords or {})

    # -- calls -----------------------------------------------------------------------------------

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value] | None = None
    ) -> Value:
        """`function(*arguments, **keywords)`."""
        return function.call(self, arguments, keywords or {})

    def read_all(self, values: Iterable[Value]) -> None:
        """Read the items of existing containers, so that the containers are wholly known."""
        for value in values:
            match value:
                case SequenceValue():
                    self.read_all(value.items(self))
                case DictValue():
                    self.read_all([item for _, item in value.entries(self)])

    def execute(self, function: FunctionValue, variables: dict[str, Value]) -> Value:
        """Run a function with its parameters bound."""
        if len(self.frames) >= DEPTH_LIMIT:
            raise self.unsupported(reasons.TOO_DEEP, limit=DEPTH_LIMIT)
        if function.code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise self.unsupported(reasons.ASYNCHRONOUS)
        return self.run(self.new_frame(function, variables))

    def new_frame(self, function: FunctionValue, variables: dict[str, Value]) -> Frame:
        """A call of a function with its parameters bound, about to run."""
        path = self._module_path(variables)
        return Frame(self, function, variables, _DECODED.of(function.code), path)

    def run(self, frame: Frame) -> Value:
        """Execute a frame."""
        if INTERRUPTS.is_pending:
            INTERRUPTS.deliver()
        if not self.frames:
            self.root = frame
        with self.entered(frame):
            return frame.run()

    def _module_path(self, variables: dict[str, Value]) -> str:
        """The path of the module whose method runs: its source, from the root module on."""
        first = next(iter(variables.values()), None)
        if isinstance(first, ModuleValue) and isinstance(first.source, Source):
            return module_name(first.source)
        return self.frames[-1].module_path if self.frames else ""

    @contextmanager
    def entered(self, frame: Frame) -> Iterator[None]:
        """Make a frame the innermost one."""
        self.frames.append(frame)
        handled = self.handled
        try:
            yield
        finally:
            self.frames.pop()
            self.handled = handled

    # -- the graph -------------------------------------------------------------------------------

    def add_input(self, value: TensorValue, tensor: Any, source: Source) -> tuple[fx.Node, Any]:
        """Make an existing tensor an input of the graph."""
        shape = self.sizes.tensor(tensor, source)
        self.guard(GuardKind.TYPE, source, type(tensor))
        pattern = TensorPattern.of(tensor, None if shape is None else shape.open)
        self.guard(GuardKind.TENSOR, source, pattern)
        node, fake = self.builder.add_input(identifier(source, len(self.inputs)), tensor, shape)
        self.shapes.append(shape)
        node.meta["source"] = source
        node.meta["is_of_module"] = _is_of_module(source)
        self.inputs.append(value)
        self.tensors[id(fake)] = value
        if _is_number_of_module(tensor, source):
            self.builder.readers[node] = functools.partial(self._read_number, tensor, source)
        return node, fake

    def _read_number(self, tensor: torch.Tensor, source: Source) -> torch.Tensor | None:
        """The content of a buffer when the call begins, with a guard; None where it was seen to
        vary, or the graph may have changed it through another input.
        """
        storage = tensor.untyped_storage().data_ptr()
        sharing = [value for value in self.inputs if has_memory(value.object)]
        if sum(value.object.untyped_storage().data_ptr() == storage for value in sharing) > 1:
            return None
        number = NumberSource(source)
        if self.sizes.history.has_changed(number.expression(), tensor.item()):
            return None
        self.guard(GuardKind.EQUALS, number, tensor.item())
        return tensor.detach().clone()

    def input_sources(self) -> list[Source]:
        """The sources of the graph's inputs, in the order of its placeholders."""
        readings = self.sizes.readings
        sources = [readings[name].source for name in self.builder.symbols]
        for tensor in self.inputs:
            assert tensor.source is not None, "a graph input has a source"
            sources.append(tensor.source)
        return sources

    def guard_list(self) -> tuple[Guard, ...]:
        """All guards so far. Nothing more may be assumed of sizes from here on."""
        shapes = self.sizes.close()
        return (*self.guards.values(), *([] if shapes is None else [shapes.guard]))

    def call_graph(
        self, function: Any, arguments: Sequence[Value], keywords: dict[str, Value]
    ) -> Value:
        """Put a call of a torch function, or of a method of its first argument when given a name,
        in the graph.
        """
        try:
            return tensor_calls.call_graph(self, function, arguments, keywords)
        except NotConstant as error:
            raise tensor_calls.cannot_hold(self, function, error) from None

    def call_checkpointed(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """`function(*arguments, **keywords)`, whose calls in the graph are marked as a checkpointed
        region: backward computes it again.
        """
        before = self.builder.checkpoint
        self.builder.checkpoint = len(self.builder.graph.nodes)
        try:
            return self.call(function, arguments, keywords)
        finally:
            self.builder.checkpoint = before

    def add_effect(self, function: Any, arguments: Sequence[Any]) -> fx.Node:
        """Put a call with constant arguments in the graph for what it does; its node."""
        return self.builder.add_call(function, arguments, {}, None, self.describe_node)

    def describe_node(self, node: fx.Node) -> None:
        place = self.location()
        if place is not None:
            node.meta["location"] = (place.file, place.line, place.text)
        node.meta["stack_trace"] = node.stack_trace = self.stack_trace()
        self.may_return = self.may_return or any(frame.is_protected for frame in self.frames)
        node.meta["module_path"] = self.frames[-1].module_path if self.frames else ""

    def mapping_entries(self, value: Value) -> list[tuple[Value, Value]]:
        """The items of a mapping, as `**` and `dict()` read them."""
        if isinstance(value, InstanceDictValue):
            return value.entries(self)
        if isinstance(value, DictValue) and _reads_like_dict(value.cls):
            return value.entries(self)
        keys = self.items(self.call(self.attribute(value, "keys"), []))
        return [(key, self.get_item(value, key)) for key in keys]


def _reads_like_dict(cls: type) -> bool:
    """Whether a subclass of dict iterates and looks up as dict does."""
    return (
        getattr(cls, "__iter__", None) is dict.__iter__
        and getattr(cls, "__getitem__", None) is dict.__getitem__
    )


def _setattr_none(owner: Any, name: str) -> None:
    setattr(owner, name, None)


def _guard_key(expected: Any) -> Any:
    """The key that tells two guards of one kind and source apart."""
    if expected is None or type(expected) in (str, int, bool) or isinstance(expected, Source):
        return expected
    return id(expected)


def _is_of_module(source: Source) -> bool:
    """Whether a tensor is a parameter or a buffer of a module."""
    match source:
        case DictItemSource(origin=InstanceSource(name="_buffers" | "_parameters")):
            return True
    return False


def _is_number_of_module(tensor: torch.Tensor, source: Source) -> bool:
    """Whether a tensor is a module's buffer of one integer, in memory: most often a setting."""
    match source:
        case DictItemSource(origin=InstanceSource(name="_buffers")):
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            return whole and tensor.dim() == 0 and tensor.device.type == "cpu"
    return False
