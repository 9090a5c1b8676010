"""Functions that the graph calls as they are, without being interpreted: the variables outside that
they read are guarded.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from fusewright.capture.values.base import Machine
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import FunctionValue


def guard_variables(machine: Machine, function: FunctionValue) -> None:
    """Guard the global variables that a function names and the cells that it has, and so on for the
    functions of the program among them.
    """
    pending, codes = [function], set()
    while pending:
        current = pending.pop()
        if current.code in codes or _belongs_to_torch(current):
            continue
        codes.add(current.code)
        variables = [current.namespace.load(machine, name) for name in _names(current.code)]
        variables += [cell.load(machine) for cell in current.cells]
        for value in variables:
            match value:
                case ConstantValue():
                    value.constant()
                case FunctionValue():
                    pending.append(value)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of variables and attributes in a code object and those inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _belongs_to_torch(function: FunctionValue) -> bool:
    return str(function.namespace.dictionary.get("__name__", "")).partition(".")[0] == "torch"
