"""The arguments of an operator: by name, and the tensors among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


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
