"""The arguments of an operator: by name, and the tensors among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor


def by_name(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, of which the first have `names`."""
    return {**dict(zip(names, args, strict=False)), **kwargs}


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """Operator arguments are values and lists of values, no deeper."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` (a tensor, or tuples, lists and dicts of such) with `function` applied to each
    tensor.
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        return tuple([mapped(one, function) for one in value])
    if isinstance(value, list):
        return [mapped(one, function) for one in value]
    if isinstance(value, dict):
        return {name: mapped(one, function) for name, one in value.items()}
    return value
