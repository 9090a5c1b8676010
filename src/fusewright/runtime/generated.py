"""The names that generated modules import: kernels, views, checks, and their own benchmark."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fusewright.number_functions import NUMBER_FUNCTIONS
from fusewright.runtime.choices import Choice
from fusewright.runtime.cpu import KernelSource
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.debug_printer import assert_layout, check_nan, debug_print
from fusewright.runtime.draws import bernoulli
from fusewright.runtime.layouts import (
    check_fact,
    exact_layout,
    reinterpret,
    tensor_kind,
    with_layout,
)
from fusewright.runtime.loops import scan, while_loop
from fusewright.runtime.measuring import Input, OpaqueInput, Size, measure
from fusewright.runtime.memory_checks import allocator, placer
from fusewright.runtime.partial_writes import telling_of_writes
from fusewright.runtime.targets import load_kernels

__all__ = [
    "NUMBER_FUNCTIONS",
    "Choice",
    "Input",
    "KernelSource",
    "OpaqueInput",
    "Size",
    "TritonSource",
    "allocator",
    "assert_layout",
    "bernoulli",
    "check_fact",
    "check_nan",
    "constant",
    "debug_print",
    "exact_layout",
    "load_kernels",
    "measure",
    "placer",
    "reinterpret",
    "scan",
    "telling_of_writes",
    "tensor_kind",
    "while_loop",
    "with_layout",
]

CONSTANTS = "__constants__"
"""The global of a generated module through which its loader hands over compile-time tensors."""


def constant(namespace: Mapping[str, object], name: str, kind: Input | None = None) -> torch.Tensor:
    """The compile-time tensor `name` of the generated module whose globals are `namespace`; a
    random one where that is run by itself to be measured.
    """
    constants = namespace.get(CONSTANTS)
    if not isinstance(constants, Mapping):
        is_measured = namespace["__name__"] == "__main__"
        if kind is not None and is_measured:
            return kind.random({})
        words = f"this module needs the constant {name}, whose data was not stored with the source"
        raise SystemExit(words) if is_measured else RuntimeError(words)
    constant: torch.Tensor = constants[name]
    return constant
