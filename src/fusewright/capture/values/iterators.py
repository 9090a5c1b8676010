"""Iterators: over sequences, over ranges of constants, driven by a Python function, and
generators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from fusewright.capture.values.base import Interpreter, Rebuilder, TracedError, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.objects import ExceptionValue

LIST_ITERATOR: Final[type] = type(iter([]))
GENERATOR: Final[type] = type(_ for _ in ())


class IteratorValue(Value):
    """An iterator made while tracing. `advance` gives the next item, or None at the end."""

    __slots__ = ("_advance", "cls")

    def __init__(
        self, advance: Callable[[Interpreter], Value | None], cls: type = LIST_ITERATOR
    ) -> None:
        super().__init__(None)
        self._advance = advance
        self.cls = cls

    @classmethod
    def over(cls, items: Sequence[Value], kind: type = LIST_ITERATOR) -> SequenceIteratorValue:
        """An iterator over values that are all at hand."""
        return SequenceIteratorValue(items, kind)

    def python_type(self) -> type:
        return self.cls

    def advance(self, interpreter: Interpreter) -> Value | None:
        """The next item, or None at the end."""
        return self._advance(interpreter)


class SequenceIteratorValue(IteratorValue):
    """An iterator over a list of values; the list may grow meanwhile, as in Python."""

    __slots__ = ("items", "position")

    def __init__(self, items: Sequence[Value], kind: type = LIST_ITERATOR) -> None:
        super().__init__(self._take, kind)
        self.items = items
        self.position = 0

    def _take(self, interpreter: Interpreter) -> Value | None:
        if self.position >= len(self.items):
            return None
        item = self.items[self.position]
        self.position += 1
        return item

    def parts(self) -> Sequence[Value]:
        return self.items[self.position :]

    def rebuild(self, code: Rebuilder) -> None:
        rest = self.items[self.position :]
        code.call(iter, [lambda: code.build("list", rest)])


class GeneratorValue(Value):
    """A generator object: a suspended frame of the interpreter."""

    __slots__ = ("frame",)

    def __init__(self, frame: Any) -> None:
        super().__init__(None)
        self.frame = frame

    def python_type(self) -> type:
        return GENERATOR

    def advance(self, interpreter: Interpreter) -> Value | None:
        """Run to the next `yield`; None when the function has returned."""
        return self.frame.resume(interpreter.new(None))  # type: ignore[no-any-return]

    def stop(self, interpreter: Interpreter) -> NoReturn:
        """Raise the StopIteration that says that the function has returned, with its result."""
        result = self.frame.result
        is_none = isinstance(result, ConstantValue) and result.value is None
        raise TracedError(ExceptionValue(StopIteration, [] if is_none else [result]))

    def parts(self) -> Sequence[Value]:
        return self.frame.parts()  # type: ignore[no-any-return]

    def rebuild(self, code: Rebuilder) -> None:
        self.frame.rebuild(code)
