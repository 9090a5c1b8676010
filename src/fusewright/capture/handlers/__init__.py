"""What calls of callables that are not plain Python mean; importing it fills the tables."""

from __future__ import annotations

from fusewright.capture.handlers import (
    builtins,
    containers,
    iterators,
    library,
    numpy_functions,
    polyfills,
    torch_autograd,
    torch_functions,
    torch_modes,
    torch_transforms,
)
from fusewright.capture.handlers.registry import handles, polyfill

__all__ = [
    "builtins",
    "containers",
    "handles",
    "iterators",
    "library",
    "numpy_functions",
    "polyfill",
    "polyfills",
    "torch_autograd",
    "torch_functions",
    "torch_modes",
    "torch_transforms",
]
