"""Records: small classes declared by their fields, as with `dataclasses`, and quick to declare.

    @record
    class Store:
        "An element written."

        buffer: str
        value: Value
        origins: tuple[Origin, ...] = ()

A compiler has hundreds of them, and `dataclasses` generates and compiles six functions for each:
more than half of the time that importing fusewright took. Here `__init__` alone is generated; the
other methods are shared by all records, or closures over a getter of the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, FrozenInstanceError, field
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform, overload

__all__ = ["field", "fields_of", "is_record", "record", "replace"]

T = TypeVar("T")
Fields = dict[str, "dataclasses.Field[Any]"]

_FIELDS: Final = "__record_fields__"


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(
    *, frozen: bool = True, eq: bool = True, kw_only: bool = False, slots: bool = True
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
    cls: type[T] | None = None,
    /,
    *,
    frozen: bool = True,
    eq: bool = True,
    kw_only: bool = False,
    slots: bool = True,
) -> Any:
    """The class with the methods that follow from its annotations, which `from __future__ import
    annotations` has left as text. What it defines itself stays; `__post_init__` is called.

    `frozen`: fields cannot be set after `__init__`; `eq`: records of equal fields are equal, and
    hash alike if frozen; `kw_only`: fields are given by name; `slots`: there are no attributes but
    the fields, and, as with `dataclasses`, no `super()` without arguments in methods.
    """

    def declare(cls: type[T]) -> type[T]:
        namespace = {
            name: value
            for name, value in vars(cls).items()
            if name not in ("__dict__", "__weakref__")
        }
        own = dict(_own_fields(namespace, kw_only))
        fields: Fields = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get(_FIELDS, {})
        if slots:
            namespace["__slots__"] = tuple(name for name in own if name not in fields)
        fields |= own
        namespace[_FIELDS] = fields
        positional = (
            name for name, declared in fields.items() if declared.init and not declared.kw_only
        )
        namespace.setdefault("__match_args__", tuple(positional))
        namespace.setdefault("__repr__", _show)
        if "__init__" not in namespace:
            has_more = hasattr(cls, "__post_init__")
            namespace["__init__"] = _initializer(cls.__qualname__, fields, frozen, has_more)
        if eq:
            _add_comparison(namespace, fields, frozen)
        if frozen:
            namespace |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            namespace |= {"__getstate__": _state, "__setstate__": _set_state}
        metaclass: Any = type(cls)
        return metaclass(cls.__name__, cls.__bases__, namespace)  # type: ignore[no-any-return]

    return declare if cls is None else declare(cls)


def replace(item: T, /, **changes: Any) -> T:
    """A copy with some fields changed."""
    fields: Fields = getattr(type(item), _FIELDS)
    for name, declared in fields.items():
        if declared.init and name not in changes:
            changes[name] = getattr(item, name)
    return type(item)(**changes)


def is_record(cls: type) -> bool:
    """Whether a class was declared by `record`."""
    return _FIELDS in vars(cls)


def fields_of(cls: type) -> tuple[str, ...]:
    """The names of a record's fields, in the order in which its constructor takes them."""
    fields: Fields = getattr(cls, _FIELDS)
    return tuple(name for name, declared in fields.items() if declared.init)


def _own_fields(
    namespace: dict[str, Any], kw_only: bool
) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """The fields that a class itself declares, their defaults taken out of its namespace."""
    for name, annotation in namespace.get("__annotations__", {}).items():
        if annotation.startswith("ClassVar"):
            continue
        default = namespace.pop(name, MISSING)
        declared: Any = (
            default if isinstance(default, dataclasses.Field) else field(default=default)
        )
        declared.kw_only = kw_only
        yield name, declared


def _initializer(
    qualified_name: str, fields: Fields, frozen: bool, has_more: bool
) -> Callable[..., None]:
    """`__init__`, for example:

    def __init__(self, buffer, value, *, origins=default_origins):
        set_field(self, 'buffer', buffer)
        …
    """
    variables: dict[str, Any] = {"set_field": object.__setattr__, "MISSING": MISSING}
    positional: list[str] = ["self"]
    named: list[str] = []
    lines: list[str] = []
    for name, declared in fields.items():
        parameter, value = name, name
        if declared.default is not MISSING:
            variables[f"default_{name}"] = declared.default
            parameter = f"{name}=default_{name}"
        elif declared.default_factory is not MISSING:
            variables[f"make_{name}"] = declared.default_factory
            parameter = f"{name}=MISSING"
            value = f"make_{name}() if {name} is MISSING else {name}"
        if declared.init:
            (named if declared.kw_only else positional).append(parameter)
            lines.append(
                f"set_field(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
            )
    if has_more:
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    body = "\n    ".join(lines or ["pass"])
    text = f"def __init__({parameters}):\n    {body}"
    exec(compile(text, f"<{qualified_name}.__init__>", "exec"), variables)
    function: Callable[..., None] = variables["__init__"]
    function.__qualname__ = f"{qualified_name}.__init__"
    return function


def _add_comparison(namespace: dict[str, Any], fields: Fields, frozen: bool) -> None:
    """`__eq__` and `__hash__` by the fields that count."""
    names = [name for name, declared in fields.items() if declared.compare]
    key: Callable[[Any], Any] = attrgetter(*names) if names else lambda item: ()

    def equal(self: Any, other: Any) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(key(self))

    namespace.setdefault("__eq__", equal)
    if namespace.get("__hash__") is None:  # absent, or None since the class defines `__eq__`
        namespace["__hash__"] = hash_of if frozen else None


@recursive_repr()
def _show(self: Any) -> str:
    fields: Fields = getattr(self, _FIELDS)
    shown = (
        f"{name}={getattr(self, name)!r}" for name, declared in fields.items() if declared.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """The fields, in order, for copying and pickling."""
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)
