"""Names in functions that are written as Python: each variable and object has one of its own."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from math import inf
from types import CodeType, ModuleType
from typing import Any, Final

from fusewright.capture.bytecode.instruction import CodeUnit
from fusewright.capture.bytecode.resume import goes_on_at

RAISED: Final = "raised"
"""The exception, in the handlers that are written."""

CONTINUATION: Final = "Continuation"

_LITERALS: Final = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range)
_NAMING: Final = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "STORE_FAST", "DELETE_FAST", "LOAD_GLOBAL", "LOAD_GLOBAL_NULL"}
)
"""Instructions on variables by name."""


class PythonNames:
    """The names in one function, which is called `own_name`."""

    def __init__(self, unit: CodeUnit, own_name: str) -> None:
        self.constants: dict[str, Any] = {}
        """The objects that were named."""
        self.lines: dict[str, int] = {}
        """The lines at which resume functions go on, by name."""
        self._constant_names: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._taken: set[str] = {*unit.free_names, own_name, RAISED, CONTINUATION}
        names = {i.argument for i in unit.instructions if i.name in _NAMING}
        names.update(unit.local_names[: unit.parameter_count])
        self._variables = {
            name: self._fresh(_identifier(name.lstrip(".")))
            for name in sorted(names, key=lambda name: (name[0] == ".", name))
        }

    def variable(self, name: str) -> str:
        """A local variable as an identifier; those that capture makes begin with a dot."""
        return self._variables[name]

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def new(self, kind: str) -> str:
        """`value0`, `value1`, …"""
        number = self._counts[kind]
        self._counts[kind] += 1
        return self._fresh(f"{kind}{number}")

    def constant(self, value: Any) -> str:
        """A literal, or a name."""
        if isinstance(value, CodeType):
            name, place = function_name(value), goes_on_at(value)
            while name in self._variables.values():
                name += "_"
            if place is not None:
                self.lines[name] = place[1]
            self.constants[name] = value
            return name
        if _is_literal(value):
            return repr(value)
        earlier_name = self._constant_names.get(id(value))
        if earlier_name is not None:
            return earlier_name
        name = _name_of_object(value)
        while (
            (name in self._taken and name != CONTINUATION)
            or name in self.constants
            or getattr(builtins, name, value) is not value
        ):
            name += "_"
        self.constants[name], self._constant_names[id(value)] = value, name
        return name


def function_name(code: CodeType) -> str:
    """The name of a function of this code: what goes on in another has a number as well."""
    name, place = _identifier(code.co_name.strip("<>")), goes_on_at(code)
    return name if place is None else f"{name}_from_{place[0]}"


def _identifier(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    name = f"argument{name}" if name[0].isdigit() else name  # of a comprehension
    return f"{name}_" if keyword.iskeyword(name) else name


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return type(value) in (tuple, frozenset) and all(map(_is_literal, value))
    return type(value) in _LITERALS and value == value and value not in (inf, -inf)


def _name_of_object(value: Any) -> str:
    """A function or class by its qualified name, any other object by its class."""
    value = getattr(value, "func", value)  # of a partial
    value = getattr(value, "__wrapped__", value)
    owner = getattr(value, "__self__", None)
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str) and (owner is None or isinstance(owner, type | ModuleType)):
        name = name.rpartition("<locals>.")[2]
    elif owner is not None:
        name = f"{type(owner).__name__}.{value.__name__}"
    elif isinstance(value, ModuleType):
        name = value.__name__
    elif type(value) is dict and "__name__" in value:
        name = f"globals_of_{value['__name__'].rpartition('.')[2]}"
    else:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(value).__name__).lower()
    return ".".join(_identifier(part.strip("<>")) for part in name.split("."))
