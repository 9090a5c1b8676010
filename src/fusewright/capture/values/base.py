"""What every captured value is: a Python object of the traced program, known without running the
program.

A value stands for one object. It knows the object's class, its source (None for an object that the
traced program made itself) and how generated code can make it again. What operations *do* is not
written here: the interpreter turns every operator into the special method that Python would call,
and `capture.handlers` says what the ones written in C mean. Values so stay small, and a subclass of
`list` or `dict` written by a user needs nothing of its own.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

if TYPE_CHECKING:
    from fusewright.capture.guards import GuardKind
    from fusewright.capture.reasons import Reason
    from fusewright.capture.sources import Source
    from fusewright.errors import Unsupported


class _Missing:
    """The absence of an object, where None is an object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<missing>"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()


class NotConstant(Exception):
    """The value is not known when the program is compiled: it holds a tensor or the like."""


class Rebuilder(Protocol):
    """What a value uses to make its object again in generated code. Each call adds instructions."""

    def constant(self, value: Any) -> None:
        """Push an object that is known now."""

    def push(self, part: Any) -> None:
        """Push the object of another value, made once however often it is asked for; of a source;
        a new tuple, list or dict of parts; or any other object itself.
        """

    def complete(self, value: Value) -> None:
        """Make the object of a value and give it its content, for who looks at that at once."""

    def call(self, function: Callable[..., Any], *parts: Any) -> None:
        """Push the result of a function known now, given what `push` pushes for each part."""

    def tensor(self, value: Value) -> None:
        """Push the graph's result for a tensor."""

    def number(self, number: Any) -> None:
        """Push the value of a symbolic number."""


IMMUTABLE_TYPE: Final = 1 << 8
"""Bit of `cls.__flags__`: the class is written in C and its attributes cannot be set."""


def name_in_messages(cls: type) -> str:
    """What CPython's own messages call a class: one that is written in C by its module, too."""
    in_module = cls.__flags__ & IMMUTABLE_TYPE and cls.__module__ != "builtins"
    return f"{cls.__module__}.{cls.__name__}" if in_module else cls.__name__


def raise_no_attribute(interpreter: Interpreter, cls: type, name: str) -> NoReturn:
    """Raise what reading an attribute raises that is not there."""
    text = f"{name_in_messages(cls)!r} object has no attribute {name!r}"
    interpreter.raise_error(AttributeError, text)


class Value:
    """One object of the traced program."""

    __slots__ = ("source",)

    source: Source | None
    """Where the object was read from; None when the traced program made it."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def python_type(self) -> type:
        """The object's class."""
        raise NotImplementedError(type(self).__name__)

    def real(self) -> Any:
        """The object itself where it exists before the compiled code runs; MISSING for one that is
        yet to be made.
        """
        return MISSING

    def constant(self) -> Any:
        """The object, when it is an immutable one that is wholly known. Raises NotConstant."""
        raise NotConstant(self)

    def to_python(self) -> Any:
        """A copy of the object made of known parts only, lists and dicts included. Raises
        NotConstant.
        """
        return self.constant()

    def key(self) -> Hashable:
        """What stands for the object as a key of a dict or a member of a set."""
        real = self.real()
        return self if real is MISSING else real

    def rebuild(self, code: Rebuilder) -> None:
        """Push the object, made anew, in generated code; called only without a source."""
        raise NotConstant(self)

    def parts(self) -> Sequence[Value]:
        """The values that `rebuild` asks for."""
        return ()

    def describe(self) -> str:
        """The object in a few words, for messages."""
        return f"an object of class {self.python_type().__name__}"

    def get_attribute(self, interpreter: Interpreter, name: str) -> Value:
        """`object.name`: what the object's class has, bound to the object. Kinds with attributes
        of their own override it.
        """
        cls = self.python_type()
        raw, source = interpreter.class_attribute(cls, name)
        if raw is MISSING:
            raise_no_attribute(interpreter, cls, name)
        return interpreter.bind(raw, source, self, cls)

    def set_attribute(self, interpreter: Interpreter, name: str, value: Value) -> None:
        """`object.name = value`."""
        interpreter.raise_error(
            AttributeError,
            f"cannot set attribute {name!r} of {self.python_type().__name__!r} object",
        )

    def delete_attribute(self, interpreter: Interpreter, name: str) -> None:
        """`del object.name`."""
        interpreter.raise_error(
            AttributeError,
            f"cannot delete attribute {name!r} of {self.python_type().__name__!r} object",
        )

    def call(
        self, interpreter: Interpreter, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """`object(*arguments, **keywords)`: the class's `__call__` by default."""
        return interpreter.call_special(self, "__call__", arguments, keywords)


def evaluate(
    interpreter: Interpreter, function: Callable[..., Any], *arguments: Any, **keywords: Any
) -> Any:
    """What a function of known objects gives, called now. What it raises is raised in the traced
    program.
    """
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        interpreter.raise_error(type(error), *error.args)


def known_arguments(
    interpreter: Interpreter, arguments: Sequence[Value], keywords: dict[str, Value]
) -> tuple[list[Any], dict[str, Any]]:
    """The objects that the arguments of a call are, wholly known. Raises NotConstant."""
    interpreter.read_all([*arguments, *keywords.values()])
    known = [argument.to_python() for argument in arguments]
    return known, {name: argument.to_python() for name, argument in keywords.items()}


class TracedError(Exception):
    """An exception of the traced program on its way to a handler in that program."""

    def __init__(self, value: Value) -> None:
        self.value = value
        super().__init__(value)

    def is_caught_as(self, kinds: type[BaseException] | types.UnionType) -> bool:
        """Whether this is an exception of these classes, which the asker then catches."""
        is_one = issubclass(self.value.python_type(), kinds)
        if is_one:
            self.forget_frames()
        return is_one

    def forget_frames(self) -> None:
        """Let go of the interpreter's frames, once caught: one that was handed the exception and
        raised it again would be kept alive by it, with all that the interrupted calls refer to.
        """
        self.__traceback__ = self.__context__ = None


class Interpreter(Protocol):
    """What values and handlers may ask of the interpreter."""

    frames: list[Any]
    """The calls being executed, the innermost last."""

    builder: Any
    """Grows the graph."""

    inputs: list[Any]
    """The tensors from outside that the graph reads."""

    draws: list[tuple[Callable[..., Any], tuple[Any, ...]]]
    """Calls that seed Python's own random numbers, or draw, to be made when the program has run."""

    seeded: random.Random | None
    """In the state that Python's own random numbers are in, where the program has seeded them."""

    regions: list[Any]
    """The regions in a mode of torch that the program is in, the innermost last."""

    keeps_numbers: bool
    """Whether a float that is read out of a tensor stays in the graph, as a tensor of shape () in
    double precision: in steps of optimizers that read norms.
    """

    def unsupported(self, reason: Reason, **details: object) -> Unsupported:
        """The error for something that cannot be captured, at the user's current line; for the
        caller to raise.
        """

    def raise_error(self, kind: type[BaseException], *arguments: object) -> NoReturn:
        """Raise an exception in the traced program."""

    def guard(self, kind: GuardKind, source: Source | None, expected: Any = None) -> None:
        """Let the captured code be reused only while this holds."""

    def wrap(self, object: Any, source: Source) -> Value:
        """The value of an object that exists, read from `source`; one for each object."""

    def known_value(self, object: Any) -> Value | None:
        """The value of an existing object that was met before, or None."""

    def shared_dictionary(self, owner: Any, dictionary: dict[str, Any]) -> Any:
        """The DictValue of an existing object's `__dict__` where the program holds that dict by
        another way too, else None. Takes note of the owner, which is told when that happens later.
        """

    def is_held(self, value: Value) -> bool:
        """Whether the program still holds an object that it made, not only by weak references."""

    def new(self, object: Any) -> Value:
        """The value of an object that was computed while tracing (nobody else holds it)."""

    def new_tuple(self, items: Sequence[Value], cls: type = tuple) -> Value:
        """A tuple of values, or an instance of a subclass of tuple."""

    def new_list(self, items: Sequence[Value]) -> Value:
        """A new list of values."""

    def new_dict(self, items: dict[str, Value]) -> Value:
        """A new dict with strings as keys."""

    def cell(self, cell: Any, source: Source | None) -> Any:
        """The value of an existing closure cell; always the same for one cell."""

    def inline(self, function: Any, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Interpret a call of a Python function (a FunctionValue)."""

    def execute(self, function: Any, variables: dict[str, Value]) -> Value:
        """Interpret the code of a Python function with these variables, which it changes."""

    def construct(self, cls: type, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """What `type.__call__` does, past a metaclass's own `__call__`."""

    def note_made(self, object: Any, recipe: Value | None) -> None:
        """Say that a class, or something in one, was made while tracing: no guard names it.
        `recipe` is what generated code makes in its place; None where all calls may use this one.
        """

    def real_object(self, value: Value) -> Any:
        """A real object for something that a class made while tracing holds. Raises NotConstant."""

    def write_class_attribute(self, cls: type, name: str, value: Any) -> None:
        """Set an attribute of a class; MISSING deletes it."""

    def made(self, object: Any) -> Value | None:
        """How an object is made that stands for one which is another in each call; None for any
        other object.
        """

    def record_mutation(self, value: Any) -> None:
        """Say that an object is about to change, so that the change is replayed after the graph."""

    def hash_key(self, value: Value) -> Hashable:
        """What stands for a value in a dict or set. Raises TypeError in the traced program when it
        has no hash.
        """

    def note_key(self, value: Value, is_known: bool = False) -> None:
        """Say that a value stands in a dict or set, where which object it is matters. `is_known`:
        in a set that exists, which is guarded by its members.
        """

    def pin_key(self, value: Value) -> None:
        """Guard which object a key is, what it holds included."""

    def attribute_after(self, cls: type, after: type, name: str) -> tuple[Any, Source | None]:
        """What the first class behind `after` in the method resolution order of `cls` holds for a
        name, unbound (or MISSING), and where; guarded.
        """

    def class_attribute(self, cls: type, name: str) -> tuple[Any, Source | None]:
        """What the class or a base holds for a name, unbound (or MISSING), and where; guarded."""

    def bind(self, raw: Any, source: Source | None, instance: Value | None, cls: type) -> Value:
        """Apply the descriptor protocol to what `class_attribute` found."""

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`, with `__getattribute__` and `__getattr__`. Raises TracedError."""

    def attribute_or_none(self, value: Value, name: str) -> Value | None:
        """`value.name`, or None when that raises AttributeError."""

    def set_attribute(self, value: Value, name: str, new: Value) -> None:
        """`value.name = new`, with `__setattr__`."""

    def special(self, value: Value, name: str) -> Value | None:
        """The special method `name` of the value's class, bound to it; None when the class has
        none.
        """

    def call_special(
        self,
        value: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value] | None = None,
    ) -> Value:
        """Call a special method. Raises TypeError in the traced program when the class has none."""

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value] | None = None
    ) -> Value:
        """`function(*arguments, **keywords)`."""

    def call_object(
        self,
        function: Any,
        source: Source | None,
        arguments: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        """Call a callable that is known by identity: a Python function, a C function, a torch
        function.
        """

    def call_graph(
        self, function: Any, arguments: Sequence[Value], keywords: dict[str, Value]
    ) -> Value:
        """Put a call of a torch function, or of a method of its first argument when given a name,
        in the graph.
        """

    def call_checkpointed(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """`function(*arguments, **keywords)`, whose calls in the graph are told to be one region:
        backward computes it again.
        """

    def call_with_subprograms(
        self,
        name: str,
        use: Callable[..., Any],
        functions: Sequence[Value],
        arguments: Sequence[Value],
        keywords: dict[str, Value],
    ) -> Value:
        """Put `use(*functions, *arguments, **keywords)` in the graph as one call, the functions of
        the program being graphs of their own.
        """

    def read_all(self, values: Iterable[Value]) -> None:
        """Read all items of existing containers, so that `to_python` knows them."""

    def add_effect(self, function: Any, arguments: Sequence[Any]) -> Any:
        """Put a call with constant arguments in the graph for what it does; its node."""

    def call_tensor_method(
        self, tensor: Any, name: str, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Call a method of a tensor: a call in the graph, or a constant where it reads metadata
        alone.
        """

    def tensor_metadata(self, tensor: Any, name: str) -> Value:
        """An attribute of a tensor that is not a tensor: shape, dtype, device."""

    def truth(self, value: Value) -> bool:
        """`bool(value)`."""

    def iterate(self, value: Value) -> Value:
        """`iter(value)`."""

    def next(self, iterator: Value) -> Value | None:
        """`next(iterator)`; None at its end."""

    def items(self, value: Value) -> list[Value]:
        """`list(value)`."""

    def length(self, value: Value) -> int:
        """`len(value)`."""

    def get_item(self, value: Value, key: Value) -> Value:
        """`value[key]`."""

    def contains(self, container: Value, item: Value) -> bool:
        """`item in container`."""

    def mapping_entries(self, value: Value) -> list[tuple[Value, Value]]:
        """The items of a mapping, as `**` and `dict()` read them."""

    def unary(self, name: str, operand: Value) -> Value:
        """A unary operator by its name in module `operator`."""

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """A binary operator by its name in module `operator`."""

    def compare(self, operator: str, left: Value, right: Value) -> Value:
        """A comparison by its symbol."""

    def equal(self, left: Value, right: Value) -> bool:
        """`left is right or left == right`, as containers compare their items."""

    def guard_different(self, left: Value, right: Value) -> None:
        """Guard that two existing objects stay different ones, if they are."""

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""
