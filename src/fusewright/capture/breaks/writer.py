"""Write the function that runs in place of a frame up to a graph break, and past it.

    def f(x, y):
        g0, g1 = compiled(x)                  # the graph so far, and its effects
        r0 = print(g0)                        # the instruction at which capture stopped, as written
        return Continuation(f_resumed, (r0, g1, y))

The hook goes on with what a continuation names, in place of `f`. A jump has a continuation for each
side. An instruction inside a `try` or `with` has one more, at the handler that the program wrote:
only an exception of that instruction gets there, since nothing else of the new function is in the
region.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.breaks.table import BreakTable
from fusewright.capture.bytecode import ExceptionRegion, Instruction
from fusewright.capture.bytecode.operations import (
    OPERATIONS,
    End,
    consumed,
    produced,
    skipped_by_jump,
)
from fusewright.capture.bytecode.resume import (
    OffsetSlot,
    ResumePoint,
    ResumeTable,
    Shape,
    Slot,
    first_argument,
    is_passed,
)
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.effects import SideEffects
from fusewright.capture.interpreter.frame import NULL, Frame, SavedException, SavedOffset
from fusewright.capture.interpreter.machine import Machine
from fusewright.capture.rebuild import FunctionWriter
from fusewright.capture.values.base import Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import FunctionValue
from fusewright.native import Continuation, disable
from fusewright.records import record, replace

FRAME_READERS: Final = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack", "breakpoint"}
)
"""Names of functions that look at the variables of the frame that calls them."""

_WITHOUT_NULL: Final = {
    "LOAD_METHOD": "LOAD_ATTR",
    "LOAD_GLOBAL_NULL": "LOAD_GLOBAL",
    "LOAD_SUPER_METHOD": "LOAD_SUPER_ATTR",
    "LOAD_ZERO_SUPER_METHOD": "LOAD_ZERO_SUPER_ATTR",
}
"""Instructions that push a callable and its companion -> those that push the callable alone."""


_NATIVE_BEHIND: Final = frozenset({reasons.TOO_LONG.name})
"""Reasons for breaks after which a function runs as it is: capture would fail there again."""


@record
class Interruption:
    """A frame that stopped before an instruction that cannot be captured."""

    frame: Frame
    original: types.CodeType
    """The code that the user wrote: the frame's own, or what its resume function was made of."""

    position: int
    """Index in the original of the instruction to execute natively."""

    live_names: frozenset[str]
    """The local variables that the instruction or what follows it may read."""

    own_cells: tuple[str, ...]
    """The cells that are empty, and that no function shares yet."""

    is_looked_at: bool
    """Whether the program may look at the frame itself, so that all its variables stay."""

    @property
    def live_values(self) -> list[Value]:
        """The values that must exist when the instruction is executed and after it."""
        frame = self.frame
        on_stack = [_passed_value(entry) for entry in frame.stack]
        variables = [frame.locals[name] for name in sorted(self.live_names) if name in frame.locals]
        cells = [frame.cells[name] for name in sorted(frame.cells) if name not in self.own_cells]
        first = first_argument(self.original)
        own = None if first is None else _local(frame, first)
        return [value for value in (own, *on_stack, *variables, *cells) if value is not None]


def interruption(frame: Frame, resumes: ResumeTable) -> Interruption | None:
    """The interruption by which a frame goes on natively from where it stopped; None when the
    instruction there must not leave its function.
    """
    original, position = resumes.locate(frame.code, frame.position)
    instruction = frame.decoded.instructions[frame.position]
    if not OPERATIONS[instruction.name].is_movable or position < 0:
        return None
    if frame.handled is not None and instruction.region is None:
        return None  # nobody would put back the exception handled before, were another raised
    if any(name not in frame.cells for name in resumes.free_names(original)):
        return None  # a comprehension has set the cell aside: its own variable has the same name
    empty = {
        name
        for name, cell in frame.cells.items()
        if name not in original.co_freevars and cell.load(frame.machine) is None
    }
    own_cells = tuple(sorted(name for name in empty if frame.cells[name].is_private))
    if resumes.may_find_empty(original, position, empty.difference(own_cells)):
        return None
    names = resumes.live(original, position)
    is_looked_at = not FRAME_READERS.isdisjoint(original.co_names)
    if is_looked_at:
        names = frozenset(frame.locals).intersection(original.co_varnames)
    first = first_argument(original)
    if first is not None and _local(frame, first) is None:
        return None
    own_names = names.difference(resumes.free_names(original))
    return Interruption(frame, original, position, own_names, own_cells, is_looked_at)


class BreakWriter(FunctionWriter):
    """Writes a function that stops capture at one instruction."""

    def __init__(
        self,
        machine: Machine,
        root: FunctionValue,
        stop: Interruption,
        breaks: BreakTable,
        reason: str,
    ) -> None:
        super().__init__(machine, root)
        self.stop = stop
        self.reason = reason
        """The name of the reason for the break."""
        self.breaks = breaks
        self.resumes = breaks.resumes
        instructions = stop.frame.decoded.instructions
        self.instruction = instructions[stop.frame.position]
        self._index_of = {item: index for index, item in enumerate(instructions)}
        self.code.positions = self.instruction.positions

    def write_break(self, effects: SideEffects) -> types.CodeType:
        """The code of the new function."""
        if effects.compiled is not None:
            effects = replace(effects, compiled=disable(effects.compiled))
        self.begin(effects, self.stop.live_values)
        if self.stop.is_looked_at:
            self._restore_locals()
        self._execute()
        return self.assemble()

    def _restore_locals(self) -> None:
        """Give the variables their values under their own names, for whoever looks at the frame."""
        names = [name for name in sorted(self.stop.live_names) if name in self.stop.frame.locals]
        for name in names:
            self.value(self.stop.frame.locals[name])
        for name in reversed(names):
            self.code.store_local(name)

    # -- the instruction -------------------------------------------------------------------------

    def _execute(self) -> None:
        """Execute the instruction, and continue after it, at its target, or at its handler."""
        frame, instruction = self.stop.frame, self.instruction
        code = self.code
        self._target = code.label()
        handled = frame.handled
        code.load_constant(Continuation)
        code.prepare_call()
        first = self._first_argument()
        if first is not None:
            self.value(first)
        if handled is not None:
            self.value(handled)
            code.emit("PUSH_EXC_INFO")
        region = instruction.region
        handler = code.label()
        if region is not None:
            depth = 2 + (first is not None) + 2 * (handled is not None)
            code.enter_region(ExceptionRegion(handler, depth))
        elif frame.stack:
            code.enter_region(ExceptionRegion(handler, 0))
        count, null_slots = self._emit_instruction()
        code.region = None
        below = frame.stack[: len(frame.stack) - count]
        self._go_on(below, null_slots, handled is not None)
        if isinstance(instruction.argument, Instruction):
            code.place(self._target)
            self._go_on_at_target(below, handled is not None)
        if region is not None:
            code.place(handler)
            self._go_on_at_handler(region, handled is not None)
        elif frame.stack:
            code.place(handler)
            self._leave_by_exception(below)

    def _emit_instruction(self) -> tuple[int, tuple[Slot, ...]]:
        """Push the operands and execute. How many stack entries were taken, and what the results
        are, from the bottom: values on the stack, and NULLs that are left to the resume function.
        """
        instruction, frame, code = self.instruction, self.stop.frame, self.code
        name = instruction.name
        if name == "WITH_EXCEPT_START":
            self._call_exit()
            return 0, (Slot.VALUE,)
        if name == "DICT_MERGE":
            self._merge_keywords()
            return 1, ()
        count = consumed(instruction)
        for entry in frame.stack[len(frame.stack) - count :]:
            if entry is NULL:
                code.emit("PUSH_NULL")
            else:
                value = _passed_value(entry)
                assert value is not None, "an instruction takes objects only"
                self.value(value)
        self._let_go(frame.stack[: len(frame.stack) - count])
        if name in _WITHOUT_NULL:
            code.emit(_WITHOUT_NULL[name], instruction.argument)
            pair = (Slot.VALUE, Slot.NULL)
            return count, pair if VERSION.null_above_callable else pair[::-1]
        if name == "CALL":
            for part, argument in VERSION.call(instruction.argument, frame.keyword_names):
                code.emit(part, argument)
        elif isinstance(instruction.argument, Instruction):
            code.emit(name, self._target)
        else:
            code.emit(name, instruction.argument)
        return count, (Slot.VALUE,) * produced(instruction, jumps=False)

    def _let_go(self, entries: list[Any]) -> None:
        """Forget what the instruction alone needs: an exception that it raises keeps this frame
        alive, and must not be kept alive by it.
        """
        frame = self.stop.frame
        names = self.stop.live_names.intersection(frame.locals)
        values = [_passed_value(entry) for entry in entries]
        values += [*[frame.locals[name] for name in names], *frame.cells.values()]
        values += self.machine.classes.recipes()  # which no other is to be made by
        needed = {id(value) for value in values}
        tables: tuple[dict[Any, str], ...] = (self._outputs, self._sources, self._locals)
        for table in tables:
            for key in [key for key in table if key not in needed]:
                self.code.delete_local(table.pop(key))

    def _merge_keywords(self) -> None:
        """Add to the keyword arguments of a call whose callable, for messages, lies far below."""
        stack, depth = self.stop.frame.stack, self.instruction.argument
        function = stack[-depth - 3 - VERSION.null_above_callable]
        self.change(merge_keywords, function, stack[-depth - 1], stack[-1])

    def _call_exit(self) -> None:
        """Call `__exit__` of a `with` statement whose body raised."""
        stack, code = self.stop.frame.stack, self.code
        raised = stack[-1]
        self.value(stack[-4])
        code.prepare_call()
        self.call(type, raised)
        self.value(raised)
        self.value(raised)
        code.load_attribute("__traceback__")
        code.call(3)

    # -- continuations ---------------------------------------------------------------------------

    def _go_on(self, below: list[Any], results: tuple[Slot, ...], in_handler: bool) -> None:
        """Continue with the next instruction."""
        if OPERATIONS[self.instruction.name].end is End.LEAVES:
            return
        if in_handler:
            self._leave_handler(results.count(Slot.VALUE))
        self._continue(self.stop.position + 1, below, results)

    def _go_on_at_target(self, below: list[Any], in_handler: bool) -> None:
        """Continue where the instruction jumps to."""
        skipped = skipped_by_jump(self.instruction)
        for name in skipped:
            self.code.emit(name)
        count = 0 if skipped else produced(self.instruction, jumps=True)
        if in_handler:
            self._leave_handler(count)
        _, position = self.resumes.locate(
            self.stop.frame.code, self._index_of[self.instruction.argument]
        )
        self._continue(position + len(skipped), below, (Slot.VALUE,) * count)

    def _leave_by_exception(self, below: list[Any]) -> None:
        """Raise what the program does not handle. What only its stack held is dropped first, from
        the top, as CPython does: the exception keeps this frame alive.
        """
        variables = {id(value) for value in self.stop.frame.locals.values()}
        keys = dict.fromkeys(id(_passed_value(entry)) for entry in reversed(below))
        holders = {**self._locals, **self._outputs}
        for key in keys:
            if key in holders and key not in variables:
                self.code.delete_local(holders[key])
        self.code.emit("RERAISE", 0)

    def _go_on_at_handler(self, region: ExceptionRegion, in_handler: bool) -> None:
        """Continue at the program's own handler, with the exception."""
        code = self.code
        code.emit("PUSH_EXC_INFO")
        code.swap(2)
        code.emit("POP_EXCEPT")
        if in_handler:
            self._leave_handler(1)
        stack = self.stop.frame.stack
        below = stack[: region.stack_depth]
        results: tuple[Slot | OffsetSlot, ...] = (Slot.VALUE,)
        if region.saves_offset:
            results = (OffsetSlot(self.stop.position), Slot.VALUE)
        _, position = self.resumes.locate(self.stop.frame.code, self._index_of[region.handler])
        self._continue(position, below, results, is_raised=True)

    def _leave_handler(self, results: int) -> None:
        """Stop handling the exception that lies below `results` values: drop it, and give the one
        before it back.
        """
        for remove in (self.code.pop, functools.partial(self.code.emit, "POP_EXCEPT")):
            for depth in range(2, results + 2):
                self.code.swap(depth)  # together they bring the value below the results to the top
            remove()

    def _continue(
        self,
        position: int,
        below: list[Any],
        results: tuple[Slot | OffsetSlot, ...],
        is_raised: bool = False,
    ) -> None:
        """Return a continuation at `position`; the passed results lie on the stack already. Where
        an exception is among them, this frame lives as long as that.
        """
        code, frame = self.code, self.stop.frame
        shape: Shape = (*[self._slot(entry) for entry in below], *results)
        free = self.resumes.free_names(self.stop.original)
        cells = [name for name in free if name not in self.stop.own_cells]
        live = self.resumes.live(self.stop.original, position)
        if self.stop.is_looked_at:
            live = self.stop.live_names
        order = {name: i for i, name in enumerate(self.stop.original.co_varnames)}
        passed = live.intersection(frame.locals).difference(
            free
        )  # as a frame drops them at its end
        names = tuple(sorted(passed, key=lambda name: (order.get(name, len(order)), name)))
        point = ResumePoint(position, shape, len(results), names, self.stop.own_cells)
        first = first_argument(self.stop.original)
        count = sum(is_passed(slot) for slot in shape[len(below) :]) + (first is not None)
        for entry in below:
            value = _passed_value(entry)
            if value is not None:
                self.value(value)
                count += 1
        for name in names:
            if name != first:
                self.value(frame.locals[name])
                count += 1
        code.build_tuple(count)
        target = self.resumes.code(self.stop.original, point)
        if self.reason in _NATIVE_BEHIND:
            self.breaks.native.add(target)
        self._pass_open(target, below, names, results)
        self._make_function(target, cells)
        code.swap(2)
        code.call(2)
        if is_raised:
            self._forget_all()
        code.return_value()

    def _pass_open(
        self,
        target: types.CodeType,
        below: Sequence[Any],
        names: Sequence[str],
        results: Sequence[Slot | OffsetSlot],
    ) -> None:
        """Tell the resume function which of its parameters vary."""
        history = self.machine.sizes.history

        def is_open(value: Any) -> bool:
            return isinstance(value, ConstantValue) and value.source in history.left_open

        values = [f".s{index}" for index, entry in enumerate(below) if is_open(entry)]
        values += [name for name in names if is_open(self.stop.frame.locals[name])]
        of_open = self.reason == reasons.VARYING_VALUE.name
        slots = range(len(below), len(below) + len(results)) if of_open else ()
        if values or slots:
            self.breaks.leave_open(target, values, [f".s{index}" for index in slots])

    def _forget_all(self) -> None:
        """Let go of what was on the stack, and of what was made, but not of variables."""
        tables: tuple[dict[Any, str], ...] = (self._outputs, self._sources, self._locals)
        names = {name for table in tables for name in table.values()}
        names.update(name for name in self.root.code.co_varnames if name.startswith(".s"))
        for name in sorted(names):
            self.code.load_constant(None)
            self.code.store_local(name)

    def _make_function(self, target: types.CodeType, cells: Sequence[str]) -> None:
        """Push the resume function, sharing the frame's cells."""
        for name in cells:
            self.value(self.stop.frame.cells[name])
        if cells:
            self.code.build_tuple(len(cells))
        self.code.make_function(target, closure=bool(cells))

    def _first_argument(self) -> Value | None:
        """The argument that `super()` without arguments looks for in the first slot."""
        name = first_argument(self.stop.original)
        return None if name is None else _local(self.stop.frame, name)

    def _slot(self, entry: Any) -> Slot | OffsetSlot:
        match entry:
            case SavedException():
                return Slot.EXCEPTION
            case SavedOffset(position):
                _, original = self.resumes.locate(self.stop.frame.code, position)
                return OffsetSlot(original)
            case Value():
                return Slot.VALUE
            case _:
                return Slot.NULL


def _local(frame: Frame, name: str) -> Value | None:
    """A parameter of the original, which may go under a name of its own in a resume function."""
    return frame.locals.get(f".{name}") or frame.locals.get(name)


def _passed_value(entry: Any) -> Value | None:
    """Passed for an entry of the stack; None for what the resume function makes itself."""
    match entry:
        case SavedException(handled=handled):
            return handled
        case Value():
            return entry
        case _:
            return None


def merge_keywords(function: Any, keywords: dict[str, Any], added: Any) -> None:
    """Do what `DICT_MERGE` does; called by generated code."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    place = "" if module in (None, "builtins") else f"{module}."
    text = str(function) if name is None else f"{place}{name}()"
    if not hasattr(added, "keys"):
        kind = type(added).__name__
        raise TypeError(f"{text} argument after ** must be a mapping, not {kind}")
    for key in added.keys():  # noqa: SIM118 (`**` calls it)
        if key in keywords:
            raise TypeError(f"{text} got multiple values for keyword argument {key!r}")
        keywords[key] = added[key]
