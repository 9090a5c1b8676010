"""Instructions on variables: locals, cells, globals, and the names of a class body."""

from __future__ import annotations

from typing import Any

from fusewright.capture.interpreter.frame import NULL, Frame
from fusewright.capture.interpreter.instructions.table import opcode, push_callable, refusal
from fusewright.capture.values.base import MISSING, Value
from fusewright.capture.values.functions import CellValue
from fusewright.capture.values.mappings import DictValue

# -- locals ---------------------------------------------------------------------------------------


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        _raise_unbound(frame, name)
    frame.stack.append(value)


@opcode("STORE_FAST")
def store_fast(frame: Frame, name: str) -> None:
    value = frame.stack.pop()
    if value is NULL:  # the variable had no value before a comprehension that is inlined here
        frame.locals.pop(name, None)
        if _is_cell_slot(frame, name):
            frame.cells.pop(name, None)
    elif isinstance(value, CellValue) and _is_cell_slot(frame, name):
        frame.cells[name] = value
    else:
        frame.locals[name] = value


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, name: str) -> None:
    """Set a variable aside while a comprehension that is inlined here has one of the same name:
    the variable's cell, when it has one.
    """
    value: Any = frame.locals.pop(name, NULL)
    if _is_cell_slot(frame, name):
        value = frame.cells.pop(name, value)
    frame.stack.append(value)


def _is_cell_slot(frame: Frame, name: str) -> bool:
    """Whether instructions on the local `name` find the cell of that name."""
    code = frame.code
    return name in code.co_cellvars or (name in code.co_freevars and name not in code.co_varnames)


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, name: str) -> None:
    if frame.locals.pop(name, None) is None:
        _raise_unbound(frame, name)


def _raise_unbound(frame: Frame, name: str) -> None:
    frame.machine.raise_error(
        UnboundLocalError,
        f"cannot access local variable {name!r} where it is not associated with a value",
    )


# -- cells ----------------------------------------------------------------------------------------


@opcode("MAKE_CELL")
def make_cell(frame: Frame, name: str) -> None:
    frame.cells[name] = CellValue(frame.locals.get(name, MISSING))


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, name: str) -> None:
    cell = frame.cells.get(name)
    if cell is not None:
        cell.is_private = False
        frame.stack.append(cell)
    else:  # 3.13 loads a comprehension's variable alike while the cell of that name is set aside
        load_fast(frame, name)


@opcode("LOAD_DEREF")
def load_deref(frame: Frame, name: str) -> None:
    value = frame.cells[name].load(frame.machine)
    if value is None:
        _raise_empty(frame, name)
    frame.stack.append(value)


@opcode("STORE_DEREF")
def store_deref(frame: Frame, name: str) -> None:
    frame.cells[name].store(frame.machine, frame.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(frame: Frame, name: str) -> None:
    cell = frame.cells[name]
    if cell.load(frame.machine) is None:
        _raise_empty(frame, name)
    cell.store(frame.machine, MISSING)


def _raise_empty(frame: Frame, name: str) -> None:
    if name in frame.code.co_cellvars:
        _raise_unbound(frame, name)
    frame.machine.raise_error(
        NameError,
        f"cannot access free variable {name!r} where it is not associated with a value in "
        "enclosing scope",
    )


# -- globals --------------------------------------------------------------------------------------


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, name: str) -> None:
    value = frame.namespace.load(frame.machine, name)
    if value is None:
        frame.machine.raise_error(NameError, f"name {name!r} is not defined")
    frame.stack.append(value)


@opcode("LOAD_GLOBAL_NULL")
def load_global_null(frame: Frame, name: str) -> None:
    load_global(frame, name)
    push_callable(frame, frame.stack.pop())


@opcode("STORE_GLOBAL")
def store_global(frame: Frame, name: str) -> None:
    frame.namespace.store(frame.machine, name, frame.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, name: str) -> None:
    namespace = frame.namespace
    exists = namespace.load(frame.machine, name) is not None
    if not exists or name not in (namespace.dictionary.keys() | namespace.written.keys()):
        frame.machine.raise_error(NameError, f"name {name!r} is not defined")
    frame.namespace.store(frame.machine, name, MISSING)


# -- the names of a class body --------------------------------------------------------------------


@opcode("LOAD_NAME")
def load_name(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        load_global(frame, name)
    else:
        frame.stack.append(value)


@opcode("STORE_NAME")
def store_name(frame: Frame, name: str) -> None:
    frame.locals[name] = frame.stack.pop()


@opcode("DELETE_NAME")
def delete_name(frame: Frame, name: str) -> None:
    if frame.locals.pop(name, None) is None:
        frame.machine.raise_error(NameError, f"name {name!r} is not defined")


@opcode("LOAD_CLASSDEREF")
def load_class_deref(frame: Frame, name: str) -> None:
    value = frame.locals.get(name)
    if value is None:
        load_deref(frame, name)
    else:
        frame.stack.append(value)


class BodyNames(Value):
    """The names defined so far in a class body, as later instructions of the body look them up."""

    __slots__ = ("names",)

    def __init__(self, names: dict[str, Value]) -> None:
        super().__init__(None)
        self.names = names

    def python_type(self) -> type:
        return dict


@opcode("LOAD_LOCALS")
def load_locals(frame: Frame, operand: Any) -> None:
    frame.stack.append(BodyNames(frame.locals))


@opcode("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(frame: Frame, name: str) -> None:
    if not _load_from_body(frame, name):
        load_global(frame, name)


@opcode("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(frame: Frame, name: str) -> None:
    if not _load_from_body(frame, name):
        load_deref(frame, name)


def _load_from_body(frame: Frame, name: str) -> bool:
    """Pop the names of a class body and push the value of one of them, if it is there."""
    names = frame.stack.pop()
    if not isinstance(names, BodyNames):
        raise refusal(frame, "LOAD_FROM_DICT")
    value = names.names.get(name)
    if value is not None:
        frame.stack.append(value)
    return value is not None


@opcode("SETUP_ANNOTATIONS")
def set_up_annotations(frame: Frame, operand: Any) -> None:
    frame.locals.setdefault("__annotations__", DictValue(dict))
