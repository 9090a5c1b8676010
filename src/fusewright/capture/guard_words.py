"""What the tests of a guard program expect and found, in words; one row a test."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import torch

from fusewright.capture.shape_guard import REAL_ITSELF

GONE: Any = object()
"""Stands for an expected object that was held weakly and is gone."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def _show(value: Any) -> str:
    """A short text for any object; a tensor is never printed, since that would read its data."""
    if value is GONE:
        return "one that is gone"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__qualname__}"
    return _repr.repr(value)


def _names(keys: Any) -> str:
    return ", ".join(key if isinstance(key, str) else _show(key) for key in keys) or "none"


Words = Callable[[Any], str]

_EXPECTED: dict[str, Words] = {
    "is": lambda value: f"the very same {_show(value)}",
    "type": lambda value: f"type {_show(value)}",
    "code": lambda value: "the code of " + getattr(value, "co_qualname", "a function that is gone"),
    "equals": _show,
    "length": lambda value: f"length {value}",
    "keys": lambda value: f"the keys {_names(value)}",
    "contains": lambda value: f"the key {_show(value)}",
    "lacks": lambda value: f"no {_show(value)}",
    "members": lambda value: f"the members {_names(value)}",
    "lacks_attribute": lambda value: f"no attribute {value}",
    "present": lambda value: "something",
    "type_lacks": lambda value: f"no class attribute {value}",
    "tensor": str,
    "same": lambda value: "one object in both places",
    "distinct": lambda value: "an object given only once",
    "storage": str,
    "sizes": lambda expected: (
        "a finite number" if _reads_float(expected) else "sizes that fit together"
    ),
    "grad_mode": lambda value: "on" if value else "off",
    "state": lambda reading: _show(reading.value),
    "dispatch_state": lambda value: "as when compiled",
}

_FOUND: dict[str, Callable[[Any, Any], str]] = {
    "is": lambda expected, found: f"another object, {_show(found)}",
    "type": lambda expected, found: f"type {_show(type(found))}",
    "code": lambda expected, found: "other code",
    "equals": lambda expected, found: _show(found),
    "length": lambda expected, found: f"length {len(found)}",
    "keys": lambda expected, found: f"the keys {_names(found)}",
    "contains": lambda expected, found: "no such key",
    "lacks": lambda expected, found: "it is there",
    "members": lambda expected, found: f"the members {_names(found)}",
    "lacks_attribute": lambda expected, found: "it is there",
    "present": lambda expected, found: "something",
    "type_lacks": lambda expected, found: "it is there",
    "tensor": lambda expected, found: "a tensor of another kind (its dispatch keys differ)",
    "same": lambda expected, found: "two objects",
    "distinct": lambda expected, found: "an object given twice",
    "sizes": lambda expected, found: (
        _show(found) if _reads_float(expected) else f"{_show(found)}, which has no such sizes"
    ),
    "storage": lambda expected, found: "memory shared in another way with what the graph reads",
    "grad_mode": lambda expected, found: "off" if expected else "on",
    "state": lambda expected, found: _show(expected.read()),
    "dispatch_state": lambda expected, found: "a change",
}


def expected_in_words(test: str, expected: Any) -> str:
    """What a test expects; GONE is an object that was held weakly."""
    return _EXPECTED[test](expected)


def found_in_words(test: str, expected: Any, found: tuple[Any, ...]) -> str:
    """What a test was given instead: `found` holds the object, or nothing if none was there."""
    if not found:
        return "nothing there"
    try:
        return _FOUND[test](expected, found[0])
    except Exception:  # An object of another class than expected, or with a `__repr__` that raises.
        return f"an object of {type(found[0])!r}"


def _reads_float(expected: Any) -> bool:
    """Whether a test of symbolic numbers reads a float, and no tensor."""
    return any(what == REAL_ITSELF for _, what in expected.reads)
