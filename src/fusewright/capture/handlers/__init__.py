"""Meanings of calls of callables that are not plain Python; importing it fills the table."""

from __future__ import annotations

from fusewright.capture.handlers import (
    builtins,
    class_statements,
    collectives,
    containers,
    control_flow,
    external_effects,
    gradient_hooks,
    interpreted_iterators,
    istft,
    iterators,
    library,
    numpy_functions,
    optimizers,
    polyfills,
    random_state,
    sizes_of_data,
    torch_autograd,
    torch_functions,
    torch_modes,
    torch_transforms,
    triton_kernels,
)
from fusewright.capture.handlers.registry import handles, polyfill

__all__ = [
    "builtins",
    "class_statements",
    "collectives",
    "containers",
    "control_flow",
    "external_effects",
    "gradient_hooks",
    "handles",
    "interpreted_iterators",
    "istft",
    "iterators",
    "library",
    "numpy_functions",
    "optimizers",
    "polyfill",
    "polyfills",
    "random_state",
    "sizes_of_data",
    "torch_autograd",
    "torch_functions",
    "torch_modes",
    "torch_transforms",
    "triton_kernels",
]
