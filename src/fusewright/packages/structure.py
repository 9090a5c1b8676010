"""Nested arguments and results as data: containers of tensors and constants are described in JSON,
matched with what a call is given, and made again.

    {"x": tensor, "lengths": [3, None]}      {"dict": [["x", {"leaf": 0}],
                                                       ["lengths", {"list": [{"constant": 3}, …]}]]}

Dataclasses and named tuples are described by the names of class and fields. They are made again by
their class where its module is loaded already, which reading a package never does by itself; else
as `Named`, which has the same fields.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from fusewright.errors import PackageRefused, WrongArgument

Description = Mapping[str, Any]

CONSTANTS: Final = (bool, int, float, str, type(None))


class CannotDescribe(Exception):
    """An object that no package holds; the text names it and its place."""


def describe(value: Any, leaf: Callable[[Any], int | None], place: str) -> Description:
    """A nested value as data. `leaf` gives the number of what varies, and None for the rest.

    Raises: CannotDescribe.
    """
    number = leaf(value)
    if number is not None:
        return {"leaf": number}
    if isinstance(value, torch.Tensor):
        raise CannotDescribe(f"{place} is a tensor that is neither an argument nor computed")
    if type(value) in CONSTANTS:
        return {"constant": value}
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    for kind in (torch.dtype, torch.device, torch.memory_format, torch.layout):
        if isinstance(value, kind):
            return {"torch": [kind.__name__, str(value).removeprefix("torch.")]}

    def inner(item: Any, name: str) -> Description:
        return describe(item, leaf, f"{place}{name}")

    if _is_named_tuple(value) or dataclasses.is_dataclass(value):
        names = _names_of_fields(value)
        described = [[name, inner(getattr(value, name), f".{name}")] for name in names]
        cls = type(value)
        return {"class": [cls.__module__, cls.__qualname__], "fields": described}
    if isinstance(value, tuple | list):
        kind_name = "tuple" if isinstance(value, tuple) else "list"
        return {kind_name: [inner(item, f"[{index}]") for index, item in enumerate(value)]}
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, inner(item, f"[{key!r}]")] for key, item in value.items()]}
    raise CannotDescribe(f"{place} is an object of class {type(value).__qualname__}")


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _names_of_fields(value: Any) -> list[str]:
    """The fields that are set: a dataclass of results leaves out what was not asked for."""
    if _is_named_tuple(value):
        return list(value._fields)
    names = [field.name for field in dataclasses.fields(value)]
    return [name for name in names if getattr(value, name) is not None]


# Matching -----------------------------------------------------------------------------------------


def take_leaves(description: Description, value: Any, place: str, leaves: list[Any]) -> None:
    """Put what varies in `value` into `leaves`, by number. Raises: WrongArgument, which names the
    place of what is otherwise.
    """
    ((kind, content), *_) = description.items()
    match kind:
        case "leaf":
            if not isinstance(value, torch.Tensor):
                raise WrongArgument(f"{place} has to be a tensor, not {_shown(value)}")
            leaves[content] = value
        case "tuple" | "list":
            if not isinstance(value, tuple | list) or len(value) != len(content):
                raise WrongArgument(
                    f"{place} has to be a {kind} of {len(content)}, not {_shown(value)}"
                )
            for index, (inner, item) in enumerate(zip(content, value, strict=True)):
                take_leaves(inner, item, f"{place}[{index}]", leaves)
        case "dict":
            keys = [key for key, _ in content]
            if not isinstance(value, Mapping) or set(value) != set(keys):
                raise WrongArgument(
                    f"{place} has to be a dict with the keys {keys}, not {_shown(value)}"
                )
            for key, inner in content:
                take_leaves(inner, value[key], f"{place}[{key!r}]", leaves)
        case "class":
            for name, inner in description["fields"]:
                if not hasattr(value, name):
                    raise WrongArgument(f"{place} has to be a {content[1]}, not {_shown(value)}")
                take_leaves(inner, getattr(value, name), f"{place}.{name}", leaves)
        case _:
            expected = rebuild(description, ())
            if type(value) is not type(expected) or value != expected:
                raise WrongArgument(
                    f"{place} has to be {expected!r}, as when the package was made, not "
                    f"{_shown(value)}"
                )


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of size {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__qualname__}"


def names_of_leaves(parameters: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """How the user writes each leaf of an entry point's parameters, by its number."""
    return {
        number: name
        for parameter in parameters
        if parameter["structure"] is not None
        for number, name in leaves_of(parameter["structure"], parameter["name"])
    }


def leaves_of(description: Description, place: str) -> Iterator[tuple[int, str]]:
    """The number of each leaf, and how the user writes its place."""
    ((kind, content), *_) = description.items()
    match kind:
        case "leaf":
            yield content, place
        case "tuple" | "list":
            for index, inner in enumerate(content):
                yield from leaves_of(inner, f"{place}[{index}]")
        case "dict":
            for key, inner in content:
                yield from leaves_of(inner, f"{place}[{key!r}]")
        case "class":
            for name, inner in description["fields"]:
                yield from leaves_of(inner, f"{place}.{name}")


# Making again -------------------------------------------------------------------------------------


class Named(dict[str, Any]):
    """The fields of a dataclass or named tuple whose module is not loaded: by name, as attributes
    and items, and by number.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return dict.__getitem__(self, name)
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: str | int | slice) -> Any:
        return dict.__getitem__(self, key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields in order."""
        return tuple(self.values())


def rebuild(description: Description, leaves: Sequence[Any]) -> Any:
    """The nested value, with these leaves."""
    ((kind, content), *_) = description.items()
    match kind:
        case "leaf":
            return leaves[content]
        case "constant":
            return content
        case "complex":
            return complex(*content)
        case "torch":
            return torch_constant(*content)
        case "tuple":
            return tuple([rebuild(inner, leaves) for inner in content])
        case "list":
            return [rebuild(inner, leaves) for inner in content]
        case "dict":
            return {key: rebuild(inner, leaves) for key, inner in content}
        case "class":
            fields = {name: rebuild(inner, leaves) for name, inner in description["fields"]}
            cls = _loaded_class(*content)
            return Named(fields) if cls is None else cls(**fields)
        case _:
            raise PackageRefused("the package", f"it describes an unknown kind {kind!r}")


def torch_constant(kind: str, name: str) -> Any:
    """A dtype, device, layout or memory format by its name."""
    if kind == "device":
        return torch.device(name)
    value = getattr(torch, name, None)
    if type(value).__name__ != kind:
        raise PackageRefused("the package", f"this torch has no {kind} {name!r}")
    return value


def _loaded_class(module: str, name: str) -> type[Any] | None:
    """A dataclass or named tuple of a module that is loaded already."""
    cls: Any = sys.modules.get(module)
    for part in name.split("."):
        cls = getattr(cls, part, None)
    is_plain = isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
    return cls if is_plain else None
