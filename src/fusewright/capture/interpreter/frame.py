"""One frame of the traced program: its variables, its stack, and the loop that executes its
instructions.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.bytecode import Instruction, taken_apart
from fusewright.capture.graph import NeedsConstants
from fusewright.capture.values.base import Machine, TracedError, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import CellValue, FunctionValue, Namespace
from fusewright.capture.values.objects import ExceptionValue
from fusewright.errors import Unsupported, WrongShape
from fusewright.records import record


class _Null:
    """The NULL that CPython pushes beside a callable."""

    __slots__ = ()


NULL: Final = _Null()


@record
class SavedException:
    """The exception handled before, which stands on the stack below the handling of another."""

    previous: Value | None
    """The exception that was being handled when this one was caught; None for none."""

    handled: Value
    """The exception being handled from here on."""

    raised_at: int
    """The number of instructions its frame had executed when it was raised, the raising one
    included.
    """


@record
class SavedOffset:
    """The place that raised, which some handlers find on the stack."""

    position: int
    """Index of the instruction in the frame's code."""


class Stopped(Exception):
    """Leaves the outermost frame before the instruction at which it was told to stop."""


Handler = Callable[["Frame", Any], "Value | None"]
"""Executes one instruction given its operand. A result other than None leaves the frame with that
value.
"""


@record
class Region:
    """The handler of an exception that an instruction raises, by position."""

    handler: int
    stack_depth: int
    saves_offset: bool


@record
class DecodedCode:
    """A code object made ready to be executed: a handler and an operand an instruction."""

    steps: list[tuple[Handler, Any]]
    instructions: Sequence[Instruction]
    """The instructions of which the steps were made."""

    lines: list[int]
    """The line that is being executed, by position of the next instruction."""

    regions: list[Region | None]


class DecodedCodes:
    """Decoded code, made once in the life of each code object. Told apart by identity: code that
    compares equal may stand on other lines.
    """

    def __init__(self, handlers: Mapping[str, Handler], unknown: Handler) -> None:
        self._handlers = handlers
        self._unknown = unknown
        self._decoded: dict[int, tuple[weakref.ref[types.CodeType], DecodedCode]] = {}

    def __len__(self) -> int:
        return len(self._decoded)

    def of(self, code: types.CodeType) -> DecodedCode:
        """The decoded form of a code object."""
        key = id(code)
        entry = self._decoded.get(key)
        if entry is None:
            alive = weakref.ref(code, lambda _: self._decoded.pop(key, None))
            decoded = _decode(code, self._handlers, self._unknown)
            entry = self._decoded[key] = (alive, decoded)
        return entry[1]


def _decode(code: types.CodeType, handlers: Mapping[str, Handler], unknown: Handler) -> DecodedCode:
    """Take a code object apart. Operands that are jump targets become positions."""
    instructions = taken_apart(code).instructions
    position = {instruction: index for index, instruction in enumerate(instructions)}
    regions: dict[Any, Region] = {}

    def operand(instruction: Instruction) -> Any:
        argument = instruction.argument
        if instruction.name not in handlers:
            return instruction.name
        if isinstance(argument, Instruction):
            return position[argument]
        return ConstantValue(argument) if instruction.name == "LOAD_CONST" else argument

    def region(instruction: Instruction) -> Region | None:
        covering = instruction.region
        if covering is None:
            return None
        if covering not in regions:
            regions[covering] = Region(
                position[covering.handler], covering.stack_depth, covering.saves_offset
            )
        return regions[covering]

    lines = [code.co_firstlineno]
    for item in instructions:
        lines.append(item.positions.line or lines[-1])

    return DecodedCode(
        steps=[(handlers.get(item.name, unknown), operand(item)) for item in instructions],
        instructions=instructions,
        lines=lines,
        regions=[region(item) for item in instructions],
    )


def stopped_generator(raised: Value) -> ExceptionValue:
    """The RuntimeError that a StopIteration becomes when it leaves a generator."""
    error = ExceptionValue(RuntimeError, [ConstantValue("generator raised StopIteration")])
    error.known |= {"__cause__": raised, "__context__": raised}
    return error


class Yielded(Exception):
    """Leaves a generator's frame with the value of a `yield`."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Frame:
    """A call of a Python function, being executed."""

    __slots__ = (
        "cells",
        "code",
        "decoded",
        "executed",
        "finished",
        "function",
        "keyword_names",
        "limit",
        "locals",
        "machine",
        "module_path",
        "namespace",
        "pause",
        "position",
        "raised_at",
        "stack",
        "stop",
    )

    def __init__(
        self,
        machine: Machine,
        function: FunctionValue,
        variables: dict[str, Value],
        decoded: DecodedCode,
        module_path: str,
    ) -> None:
        self.machine = machine
        self.function = function
        self.code: types.CodeType = function.code
        self.namespace: Namespace = function.namespace
        self.decoded = decoded
        self.locals = variables
        self.cells: dict[str, CellValue] = dict(
            zip(self.code.co_freevars, function.cells, strict=True)
        )
        self.stack: list[Any] = []
        self.position = 0
        self.keyword_names: tuple[str, ...] = ()
        self.module_path = module_path
        """The dotted path of the nn.Module whose `forward` this call belongs to."""
        self.finished = False
        self.executed = 0
        """Instructions executed so far, the one being executed included."""
        self.raised_at = 0
        """The count at which an exception was last caught here."""
        self.stop = -1
        """The number of instructions to execute before stopping; -1 for all."""
        self.limit = self.pause = 0
        """The number of instructions that may be executed, those of calls made here taken off; and
        the number until the frame stops or has executed too many.
        """

    @property
    def line(self) -> int:
        """The line being executed."""
        return self.decoded.lines[self.position]

    @property
    def is_protected(self) -> bool:
        """Whether an exception of the instruction being executed goes to a handler."""
        return self.decoded.regions[self.position - 1] is not None

    @property
    def handled(self) -> Value | None:
        """The exception that the frame itself is handling."""
        for entry in reversed(self.stack):
            if isinstance(entry, SavedException):
                return entry.handled
        return None

    def run(self) -> Value:
        """Execute until the frame returns. Raises TracedError for an exception that leaves it,
        Yielded at a `yield`, Stopped before the instruction at which to stop, Unsupported for
        what cannot be captured, and where the machine has executed enough.
        """
        machine = self.machine
        caller = machine.frames[-2] if len(machine.frames) > 1 else None
        left = machine.steps_left if caller is None else caller.limit - caller.executed
        self._limit_to(self.executed + left)
        try:
            return self._run()
        finally:
            left = self.limit - self.executed
            if caller is None:
                machine.steps_left = left
            else:
                caller._limit_to(caller.executed + left)

    def _limit_to(self, limit: int) -> None:
        """Let so many instructions be executed in all."""
        self.limit = limit
        self.pause = limit if self.stop < 0 else min(limit, self.stop)

    def _run(self) -> Value:
        steps = self.decoded.steps
        while True:
            if self.executed >= self.pause:
                if self.executed == self.stop:
                    raise Stopped
                longest = f"{self.machine.longest:,}"
                raise self.machine.unsupported(reasons.TOO_LONG, limit=longest)
            self.executed += 1
            handler, operand = steps[self.position]
            self.position += 1
            try:
                result = handler(self, operand)
            except TracedError as error:
                self._unwind(error)
                error.forget_frames()
                continue
            except (Unsupported, WrongShape, NeedsConstants, Stopped, Yielded):
                raise
            except Exception as error:
                raise self.machine.failure(error) from error
            if result is not None:
                self.finished = True
                return result

    def _unwind(self, error: TracedError) -> None:
        """Go to the handler of the innermost region around the raising instruction, or raise on."""
        region = self.decoded.regions[self.position - 1]
        if region is None:
            self.finished = True
            raise error
        error.forget_frames()
        self.raised_at = self.executed
        del self.stack[region.stack_depth :]
        if region.saves_offset:
            self.stack.append(SavedOffset(self.position - 1))
        self.stack.append(error.value)
        self.position = region.handler
