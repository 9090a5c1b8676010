"""Run a function of constants by CPython and by the interpreter of capture."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any


def closure_of(function: Any) -> list[tuple[str, types.CellType]]:
    """A function's free variables, by name."""
    names = function.__code__.co_freevars
    return list(zip(names, function.__closure__ or (), strict=True))


def executed(function: Callable[[], Any]) -> tuple[str, Any]:
    """What CPython makes of a call: "returned" and the result, or "raised" and the exception."""
    try:
        return "returned", function()
    except Exception as error:
        return "raised", described(type(error), [str(item) for item in error.args])


def interpreted(function: Callable[[], Any]) -> tuple[str, Any]:
    """What the interpreter makes of a call; "refused" and why for what it does not interpret."""
    from fusewright.capture import handlers
    from fusewright.capture.interpreter.machine import Machine
    from fusewright.capture.sources import CellSource
    from fusewright.capture.values.base import TracedError
    from fusewright.capture.values.functions import FunctionValue
    from fusewright.errors import Unsupported

    assert handlers, "importing the handlers fills their table"
    assert isinstance(function, types.FunctionType)
    machine = Machine(function.__globals__)
    namespace = machine.namespaces.of(function.__globals__)
    try:
        cells = [machine.cell(cell, CellSource(name)) for name, cell in closure_of(function)]
        root = FunctionValue(function.__code__, namespace, cells=cells)
        result = machine.execute(root, {})
        machine.read_all([result])
        return "returned", result.to_python()
    except TracedError as error:
        value: Any = error.value
        arguments = [str(item.to_python()) for item in value.arguments]
        return "raised", described(value.python_type(), arguments)
    except Unsupported as error:
        return "refused", str(error)


def described(cls: type, arguments: list[str]) -> str:
    """An exception in words."""
    return f"{cls.__name__}({', '.join(arguments)})"


def unknown_instructions() -> list[str]:
    """The instructions of the running Python for which there is neither a handler nor a reason."""
    from fusewright.capture.bytecode.operations import OPERATIONS as ROWS
    from fusewright.capture.bytecode.versions import OPERATIONS, VERSION
    from fusewright.capture.interpreter.instructions import OPCODES

    ours = {*OPERATIONS.forward, *OPERATIONS.backward}
    assert ours and len(dis.opname) >= 256
    plain = {name for name in ours if not name.startswith("INSTRUMENTED_")}
    pairs = {*VERSION.local_pairs, "COMPARE_OP_TO_BOOL"}  # which come as two
    refused = {name for name, row in ROWS.items() if row.refusal}
    return sorted(plain - OPCODES.keys() - refused - pairs)


STEPS = (2, 7)
"""How many instructions to interpret between two breaks, in tests."""

NOT_BROKEN = {
    "three_hundred_locals": "a resume function of a thousand instructions for each of hundreds",
    "wide_jumps": "likewise",
    "many_constants_and_names": "likewise",
    "many_handlers": "likewise",
    "order_of_sets": "a set that is made again has its members added one by one",
    "order_of_sets_changed": "likewise",
    "delete_empty_cell": "as in the next one",
    "empty_cell_of_this_function": "a resume function takes the cells of its original as free "
    "variables, so that an empty one raises NameError and not UnboundLocalError",
}
"""The programs that are not run with breaks, and why."""


def broken(function: Callable[[], Any], step: int) -> tuple[tuple[str, Any], int]:
    """What comes of a call whose graph breaks every `step` instructions of its own frame, in
    resume functions as well; and how many breaks there were.
    """
    from fusewright.capture import frame_capture
    from fusewright.capture.breaks import BreakTable
    from fusewright.native import Continuation

    table = BreakTable()
    arguments: tuple[Any, ...] = ()
    breaks = 0
    whole = frame_capture.Machine
    frame_capture.Machine = breaking_machine(whole, step)
    try:
        while True:
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            known = dict(zip(names, arguments, strict=True))
            try:
                capture = frame_capture.capture_call(function, known, table)
                made = capture.finish(None, None)
            except frame_capture.NotCaptured:
                made = function  # it runs as it is
            result = made(*arguments)
            if not isinstance(result, Continuation):
                return ("returned", result), breaks
            function, arguments = result.function, result.arguments
            breaks += 1
    except Exception as error:
        return ("raised", described(type(error), [str(item) for item in error.args])), breaks
    finally:
        frame_capture.Machine = whole


def breaking_machine(whole: type, step: int) -> type:
    """A machine whose outermost frame cannot go on after `step` instructions."""
    from fusewright.capture import reasons
    from fusewright.capture.bytecode.operations import OPERATIONS
    from fusewright.capture.interpreter.frame import Stopped
    from fusewright.capture.interpreter.instructions import OPCODES

    breaking = {handler for name, handler in OPCODES.items() if OPERATIONS[name].is_movable}

    class BreakingMachine(whole):
        def run(self, frame: Any) -> Any:
            if self.frames or frame.stop >= 0:
                return super().run(frame)
            frame.stop = step
            while True:
                try:
                    return super().run(frame)
                except Stopped:
                    frame.stop += 1
                    if frame.decoded.steps[frame.position][0] in breaking:
                        frame.executed += 1
                        break
            raise self.unsupported(reasons.USER_BREAK, message="one more")

    return BreakingMachine
