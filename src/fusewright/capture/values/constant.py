"""Constants: immutable objects known when the program is compiled (numbers, strings, None, dtypes,
devices, enum members).

A constant that was read from somewhere is guarded by equality, but only once somebody looks at it:
one that is merely
handed on costs nothing at run time.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, Final

import torch

from fusewright.capture.sources import Source
from fusewright.capture.values.base import Machine, Rebuilder, Value, evaluate

SCALAR_TYPES: Final = (type(None), bool, int, float, complex, str, bytes)

try:
    import numpy
except ImportError:  # torch runs without
    _numpy_classes: frozenset[type] = frozenset()
else:
    _numpy_classes = frozenset(numpy.sctypeDict.values()) - {numpy.object_, numpy.void}

NUMPY_SCALARS: Final = _numpy_classes
"""Classes of NumPy's numbers, which torch takes for Python's own."""

TYPE_FORMS: Final = frozenset(
    map(
        type,
        (
            typing.List,  # noqa: UP006
            typing.Tuple,  # noqa: UP006
            typing.Optional,
            typing.Callable,
            typing.List[int],  # noqa: UP006
            typing.Optional[int],  # noqa: UP045
            typing.Callable[[int], int],
            typing.TypeVar("T"),
        ),
    )
)
"""Classes of what annotations are made of."""

CONSTANT_TYPES: Final = frozenset(
    {
        *SCALAR_TYPES,
        *NUMPY_SCALARS,
        type(Ellipsis),
        type(NotImplemented),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.finfo,
        torch.iinfo,
        types.CodeType,
        types.GenericAlias,
        types.UnionType,
        *TYPE_FORMS,
        range,
        re.Pattern,
        re.Match,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
    }
)
"""Classes whose instances are immutable. Their attributes and methods may be used for real while
tracing.
"""


def is_constant(object: Any) -> bool:
    """Whether an object is immutable through and through, so that it can be folded and guarded by
    equality.
    """
    cls = type(object)
    if cls in CONSTANT_TYPES:
        return True
    if cls is tuple or cls is frozenset or cls is torch.Size:
        return all(is_constant(item) for item in object)
    if cls is slice:
        return is_constant(object.start) and is_constant(object.stop) and is_constant(object.step)
    return isinstance(object, enum.Enum)


class ConstantValue(Value):
    """An immutable object that is known now."""

    __slots__ = ("_pending", "_value")

    def __init__(
        self, value: Any, source: Source | None = None, pending: Callable[[], None] | None = None
    ) -> None:
        super().__init__(source)
        self._value = value
        self._pending = pending

    @property
    def value(self) -> Any:
        """The object. Looking at it is what makes its guard."""
        if self._pending is not None:
            self._pending()  # which may raise: then it is unread still
            self._pending = None
        return self._value

    @property
    def is_unread(self) -> bool:
        """Whether its source was read but the object not used yet: it has no guard."""
        return self._pending is not None

    def python_type(self) -> type:
        return type(self.value)

    def real(self) -> Any:
        return self.value

    def constant(self) -> Any:
        return self.value

    def key(self) -> Hashable:
        key: Hashable = self.value
        return key

    def rebuild(self, code: Rebuilder) -> None:
        code.constant(self.value)

    def describe(self) -> str:
        return f"the constant {self._value!r}"

    def get_attribute(self, machine: Machine, name: str) -> Value:
        value = self.value
        if type(value) in SCALAR_TYPES or type(value) in CONSTANT_TYPES:
            raw, source = machine.class_attribute(type(value), name)
            if isinstance(raw, types.MethodDescriptorType | types.WrapperDescriptorType):
                return machine.bind(raw, source, self, type(value))
        result = evaluate(machine, getattr, value, name)
        if isinstance(result, types.MethodType):
            raw, source = machine.class_attribute(type(value), name)
            return machine.bind(raw, source, self, type(value))
        return machine.new(result)


NONE: Final = ConstantValue(None)
TRUE: Final = ConstantValue(True)
FALSE: Final = ConstantValue(False)


def is_none(value: Value) -> bool:
    """Whether a value is None."""
    return type(value) is ConstantValue and value.value is None


def boolean(value: bool) -> ConstantValue:
    """The constant True or False."""
    return TRUE if value else FALSE
