"""Meanings of calls of callables that are not plain Python; importing it fills the table."""

from __future__ import annotations

from fusewright.capture.handlers import (
    builtins,
    class_statements,
    collectives,
    containers,
    control_flow,
    gradient_hooks,
    interpreted_iterators,
    iterators,
    library,
    numpy_functions,
    optimizers,
    outside_world,
    polyfills,
    random_state,
    sizes_of_data,
    spectra,
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
    "gradient_hooks",
    "handles",
    "interpreted_iterators",
    "iterators",
    "library",
    "numpy_functions",
    "optimizers",
    "outside_world",
    "polyfill",
    "polyfills",
    "random_state",
    "sizes_of_data",
    "spectra",
    "torch_autograd",
    "torch_functions",
    "torch_modes",
    "torch_transforms",
    "triton_kernels",
]
