"""The frame of a generator: it runs from `yield` to `yield`, and can be made for real meanwhile."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Final

from fusewright.capture.bytecode.resume import (
    OffsetSlot,
    ResumePoint,
    ResumeTable,
    Slot,
    parameters,
)
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.interpreter.frame import (
    NULL,
    Frame,
    SavedException,
    SavedOffset,
    Yielded,
    stopped_generator,
)
from fusewright.capture.values.base import Rebuilder, TracedError, Value
from fusewright.capture.values.constant import NONE, ConstantValue
from fusewright.capture.values.iterators import GeneratorValue
from fusewright.capture.values.objects import ExceptionValue

_DELEGATES: Final = 2
"""Operand of the `RESUME` after a `yield` that passes on what another iterator yields."""


class GeneratorFrame(Frame):
    """A generator's frame; the semantics are those of `Objects/genobject.c`."""

    __slots__ = ("made_at", "place", "result", "running", "started")

    def __init__(self, caller: Frame) -> None:
        """Take over from the frame of the call, which has come to `RETURN_GENERATOR`."""
        super().__init__(
            caller.machine, caller.function, caller.locals, caller.decoded, caller.module_path
        )
        self.cells = caller.cells
        self.position = caller.position
        self.stack.append(NONE)  # for the POP_TOP that begins every generator
        self.started = False
        self.running = False
        self.result: Value = NONE
        """The value that the generator has returned, until it has been handed out."""
        self.place = self.machine.location()
        """The place where the generator's function is defined."""
        root = self.machine.root
        self.made_at = 0 if root is None else root.executed
        """The number of instructions that the outermost frame had executed when the generator was
        made.
        """
        self.machine.generators.append(self)

    @property
    def cleans_up(self) -> bool:
        """Whether the program has code to run if the generator is dropped where it waits."""
        if self.finished or not self.started:
            return False
        region = self.decoded.regions[self.position - 1]
        while region is not None:
            # The last two instructions of a generator are a handler of CPython's own, from 3.12 on.
            if region.handler >= len(self.decoded.steps) - 2:
                return False
            passed_on = self._passes_on_exit(region.handler)
            if passed_on is None:
                return True
            region = self.decoded.regions[passed_on]
        return False

    def _passes_on_exit(self, position: int) -> int | None:
        """The position at which a handler raises GeneratorExit again, since it is nothing but
        `except` clauses of classes that this is no instance of; None for every other handler.
        """
        names = [instruction.name for instruction in self.decoded.instructions]
        steps = self.decoded.steps
        if names[position] == "CLEANUP_THROW":  # around `yield from`, from 3.12 on
            return position
        if names[position : position + 3] == ["COPY", "POP_EXCEPT", "RERAISE"]:
            return position + 2
        if names[position] != "PUSH_EXC_INFO":
            return None
        position += 1
        while names[position] != "RERAISE":
            clause = ["LOAD_GLOBAL", "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE"]
            if names[position : position + 3] != clause:
                return None
            caught = self.namespace.load(self.machine, steps[position][1])
            cls = None if caught is None else caught.real()
            if not isinstance(cls, type) or issubclass(GeneratorExit, cls):
                return None
            position = steps[position + 2][1]
        return position

    def resume(self, sent: Value) -> Value | None:
        """`send(sent)`: the value of the next `yield`, or None when the generator has returned."""
        if self.finished:
            self.result = NONE
            return None
        if self.started and not self.running:
            self.stack.append(sent)
        elif not (type(sent) is ConstantValue and sent.value is None):
            self.machine.raise_error(
                TypeError, "can't send non-None value to a just-started generator"
            )
        return self._advance(None)

    def throw(self, error: TracedError) -> Value | None:
        """Raise an exception at the `yield` where the generator waits; returns as `resume`."""
        if self.finished or not self.started:
            self.finished = True
            raise error
        delegate = self._delegate
        if delegate is None:
            return self._advance(error)
        try:
            item = self._throw_into(delegate, error)
        except TracedError as raised:
            return self._after_delegate(raised)
        return item

    def close(self) -> None:
        """Raise GeneratorExit where the generator waits; it must not yield again."""
        if self.finished or not self.started:
            self.finished = True
            return
        try:
            item = self.throw(TracedError(ExceptionValue(GeneratorExit, [])))
        except TracedError as error:
            if error.is_caught_as(GeneratorExit | StopIteration):
                return
            raise
        if item is not None:
            self.machine.raise_error(RuntimeError, "generator ignored GeneratorExit")

    def _advance(self, error: TracedError | None) -> Value | None:
        """Run to the next `yield` or the end, or from an exception raised where it waits."""
        machine = self.machine
        if self.running:
            machine.raise_error(ValueError, "generator already executing")
        self.started = self.running = True
        try:
            with machine.entered(self):
                machine.handled = self.handled or machine.handled
                if error is not None:
                    self._unwind(error)
                self.result = self.run()
        except Yielded as yielded:
            return yielded.value
        except TracedError as raised:
            if raised.is_caught_as(StopIteration):
                raise TracedError(stopped_generator(raised.value)) from None
            raise
        finally:
            self.running = False
        return None

    # -- yield from ------------------------------------------------------------------------------

    @property
    def _delegate(self) -> Value | None:
        """The iterator whose values the generator passes on where it waits, or None."""
        _, resume_operand = self.decoded.steps[self.position]
        return self.stack[-1] if resume_operand & 3 == _DELEGATES and not self.running else None

    def _throw_into(self, delegate: Value, error: TracedError) -> Value | None:
        """Let the delegate have an exception. What this raises goes on in this generator, a
        StopIteration as the end of the delegate.
        """
        machine = self.machine
        is_exit = issubclass(error.value.python_type(), GeneratorExit)
        if isinstance(delegate, GeneratorValue):
            if is_exit:
                delegate.frame.close()
                raise error
            item: Value | None = delegate.frame.throw(error)
            if item is None:
                delegate.stop(machine)
            return item
        method = machine.attribute_or_none(delegate, "close" if is_exit else "throw")
        if method is None:
            raise error
        if is_exit:
            machine.call(method, [])
            raise error
        return machine.call(method, [error.value])

    def _after_delegate(self, error: TracedError) -> Value | None:
        """Go on after the delegate raised: after the `yield from` when it is at its end."""
        if not error.is_caught_as(StopIteration):
            return self._advance(error)
        steps = self.decoded.steps
        _, send = steps[self.position + 1]  # the jump back to SEND, which jumps where it ends
        _, self.position = steps[send]
        finish_send(self, stop_value(error.value))
        return self._advance(None)

    # -- making it for real ----------------------------------------------------------------------

    def parts(self) -> Sequence[Value]:
        """The values that a real generator needs."""
        if self.finished:
            return ()
        return [*self._passed(), *self.locals.values(), *self.cells.values()]

    def rebuild(self, code: Rebuilder) -> None:
        """Push a real generator that waits at the same `yield`."""
        if self.finished:
            code.call(finished_generator)
            return
        table = ResumeTable()
        free_names = table.free_names(self.code)
        names = tuple(name for name in self.locals if name not in free_names)
        shape = tuple(_slot(entry) for entry in self._whole_stack)
        point = ResumePoint(self.position - self.started, shape, 0, names)
        code.call(
            start_generator,
            table.code(self.code, point),
            ConstantValue(self.namespace.dictionary),
            tuple(self.cells[name] for name in free_names),
            tuple(self._parameter(name) for name in parameters(self.code, point)),
            self.started,
        )

    @property
    def _whole_stack(self) -> list[Any]:
        """The stack where the real generator begins: before a `yield`, of anything."""
        return [*self.stack, NONE] if self.started else self.stack

    def _passed(self) -> list[Value]:
        """The values on the stack."""
        entries = [
            entry.handled if isinstance(entry, SavedException) else entry
            for entry in self._whole_stack
        ]
        return [entry for entry in entries if isinstance(entry, Value)]

    def _parameter(self, name: str) -> Value:
        """The value passed for a parameter of the real generator's function."""
        if not name.startswith(".s"):
            return self.locals[name.removeprefix(".") if name not in self.locals else name]
        entry = self._whole_stack[int(name.removeprefix(".s"))]
        return entry.handled if isinstance(entry, SavedException) else entry


def _slot(entry: Any) -> Slot | OffsetSlot:
    """The kind of a stack entry for the code that puts it back."""
    match entry:
        case SavedException():
            return Slot.EXCEPTION
        case SavedOffset(position):
            return OffsetSlot(position)
        case _ if entry is NULL:
            return Slot.NULL
        case _:
            return Slot.VALUE


def stop_value(raised: Value) -> Value:
    """The `value` of a StopIteration."""
    arguments = getattr(raised, "arguments", ())
    return arguments[0] if arguments else NONE


def finish_send(frame: Frame, result: Value) -> None:
    """Leave what `SEND` does when its receiver is at its end: the result, from 3.12 on above it."""
    if "SEND" in VERSION.effects_when_jumping:
        frame.stack.pop()
    frame.stack.append(result)


# -- called by generated code ---------------------------------------------------------------------


def start_generator(
    code: types.CodeType,
    namespace: dict[str, Any],
    closure: tuple[Any, ...],
    arguments: tuple[Any, ...],
    started: bool,
) -> Any:
    """A generator made by the code of a resume function; one that was started is brought to its
    first `yield`, which repeats the one where it was left.
    """
    generator = types.FunctionType(code, namespace, closure=closure or None)(*arguments)
    if started:
        next(generator)
    return generator


def finished_generator() -> Any:
    """A generator at its end."""
    generator = (None for _ in range(0))
    generator.close()
    return generator
