"""Views of mappings: what `keys()`, `values()` and `items()` of a dict give, and mapping proxies.

A view of a mapping shows what the mapping holds at any time. An existing one holds the mapping and
nothing else, which is how generated code finds the mapping.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Sequence
from typing import Any, Final

from fusewright.capture.sources import Source
from fusewright.capture.values.base import MISSING, Machine, Rebuilder, Value
from fusewright.capture.values.mappings import DictValue, InstanceDictValue

_MAKERS: Final[tuple[Any, ...]] = (dict, collections.OrderedDict)
_KINDS: Final = ("keys", "values", "items")

VIEW_TYPES: Final[dict[tuple[Any, str], Any]] = {
    (maker, kind): type(getattr(maker(), kind)()) for maker in _MAKERS for kind in _KINDS
}
"""The classes of views of dicts, by the class that makes them and the name of its method."""


def shown_mapping(view: Any) -> Any:
    """The mapping that a view of a dict or a mapping proxy shows: the one object that it holds."""
    (mapping,) = gc.get_referents(view)
    return mapping


def _maker(mapping_class: type) -> Any:
    """The class written in C whose methods give the views of a mapping."""
    ordered = issubclass(mapping_class, collections.OrderedDict)
    return collections.OrderedDict if ordered else dict


def view_kind(view: Any) -> str | None:
    """The name of the method that gives such a view; None for a view of an ordered dict as of a
    plain one, which goes through it in another order.
    """
    maker = _maker(type(shown_mapping(view)))
    return next((kind for kind in _KINDS if VIEW_TYPES[maker, kind] is type(view)), None)


class _ShowingValue(Value):
    """An object that shows a mapping."""

    __slots__ = ("mapping", "object")

    def __init__(self, mapping: Any, object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(source)
        self.mapping = mapping
        self.object = object
        """The view, when it exists; MISSING when the traced program made it."""

    def real(self) -> Any:
        return self.object

    def parts(self) -> Sequence[Value]:
        return (self.mapping,)


class DictViewValue(_ShowingValue):
    """A live view of a dict: the result of `keys()`, `values()` or `items()`."""

    __slots__ = ("kind",)

    def __init__(
        self,
        mapping: DictValue | InstanceDictValue,
        kind: str,
        object: Any = MISSING,
        source: Source | None = None,
    ) -> None:
        super().__init__(mapping, object, source)
        self.kind = kind

    @property
    def _maker(self) -> Any:
        return _maker(self.mapping.python_type())

    def python_type(self) -> type:
        return VIEW_TYPES[self._maker, self.kind]  # type: ignore[no-any-return]

    def items(self, machine: Machine) -> list[Value]:
        """The values over which iteration of the view goes."""
        match self.kind:
            case "keys":
                return self.mapping.keys(machine)  # type: ignore[no-any-return]
            case "values":
                return [item for _, item in self.mapping.entries(machine)]
            case _:
                return [machine.new_tuple(entry) for entry in self.mapping.entries(machine)]

    def to_python(self) -> Any:
        copy = self.mapping.to_python()
        return getattr(copy, self.kind)()

    def rebuild(self, code: Rebuilder) -> None:
        code.call(getattr(self._maker, self.kind), self.mapping)


class MappingProxyValue(_ShowingValue):
    """A mapping proxy, through which a mapping can only be read."""

    __slots__ = ()

    def python_type(self) -> type:
        return types.MappingProxyType

    def to_python(self) -> Any:
        return types.MappingProxyType(self.mapping.to_python())

    def rebuild(self, code: Rebuilder) -> None:
        code.call(types.MappingProxyType, self.mapping)
