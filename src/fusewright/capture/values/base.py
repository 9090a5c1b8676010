"""The base of all captured values: a value stands for a Python object of the traced program, known
without running the program.

A value stands for one object. It knows the object's class, its source (None for an object that the
traced program made itself) and how generated code can make it again. What operations *do* is not
written here: the machine turns every operator into the special method that Python would call,
and `capture.handlers` says what the ones written in C mean. Values so stay small, and a subclass of
`list` or `dict` written by a user needs nothing of its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

if TYPE_CHECKING:
    from fusewright.capture.interpreter import machine
    from fusewright.capture.sources import Source


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
    """The writer with which a value makes its object again in generated code. Each call adds
    instructions.
    """

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


def overrides_object(cls: type, name: str) -> bool:
    """Whether a class has another special method than `object` has, under a name that this has."""
    return getattr(cls, name) is not getattr(object, name)


def name_in_messages(cls: type) -> str:
    """The name of a class in CPython's own messages: with its module, where it is written in C."""
    in_module = cls.__flags__ & IMMUTABLE_TYPE and cls.__module__ != "builtins"
    return f"{cls.__module__}.{cls.__name__}" if in_module else cls.__name__


def raise_no_attribute(machine: Machine, cls: type, name: str) -> NoReturn:
    """Raise what reading an attribute raises that is not there."""
    text = f"{name_in_messages(cls)!r} object has no attribute {name!r}"
    machine.raise_error(AttributeError, text)


class Value:
    """One object of the traced program."""

    __slots__ = ("source",)

    source: Source | None
    """The source from which the object was read; None when the traced program made it."""

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
        """The hashable that stands for the object as a key of a dict or a member of a set."""
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

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`object.name`: what the object's class has, bound to the object. Kinds with attributes
        of their own override it.
        """
        cls = self.python_type()
        raw, source = machine.class_attribute(cls, name)
        if raw is MISSING:
            raise_no_attribute(machine, cls, name)
        return machine.bind(raw, source, self, cls)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """`object.name = value`."""
        machine.raise_error(
            AttributeError,
            f"cannot set attribute {name!r} of {self.python_type().__name__!r} object",
        )

    def delete_attribute(self, machine: Machine, name: str) -> None:
        """`del object.name`."""
        machine.raise_error(
            AttributeError,
            f"cannot delete attribute {name!r} of {self.python_type().__name__!r} object",
        )

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """`object(*arguments, **keywords)`: the class's `__call__` by default."""
        return machine.call_special(self, "__call__", arguments, keywords)


def evaluate(
    machine: Machine, function: Callable[..., Any], /, *arguments: Any, **keywords: Any
) -> Any:
    """Call a function of known objects now. An exception of its is raised in the traced program."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        machine.raise_error(type(error), *error.args)


def known_arguments(
    machine: Machine, arguments: Sequence[Value], keywords: dict[str, Value]
) -> tuple[list[Any], dict[str, Any]]:
    """The objects that the arguments of a call are, wholly known. Raises NotConstant."""
    machine.read_all([*arguments, *keywords.values()])
    constants = [argument.to_python() for argument in arguments]
    return constants, {name: argument.to_python() for name, argument in keywords.items()}


class TracedError(Exception):
    """An exception of the traced program on its way to a handler in that program."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.operator = ""
        """The operator of somebody's own whose fake implementation raised it; else empty."""
        super().__init__(value)

    def is_caught_as(self, kinds: type[BaseException] | types.UnionType) -> bool:
        """Whether this is an exception of these classes, which the asker then catches."""
        is_one = issubclass(self.value.python_type(), kinds)
        if is_one:
            self.forget_frames()
        return is_one

    def forget_frames(self) -> None:
        """Let go of the machine's frames, once caught: one that was handed the exception and
        raised it again would be kept alive by it, with all that the interrupted calls refer to.
        """
        self.__traceback__ = self.__context__ = None


Machine: TypeAlias = "machine.Machine"
"""The machine that executes the traced program, a parameter of nearly every function of capture.
The name stands here because the machine itself imports values and handlers.
"""
