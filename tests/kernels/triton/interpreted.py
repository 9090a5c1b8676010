"""Whole graphs on the CPU through the Triton emitter and Triton's interpreter: the backend
`triton_interpreted`, and its kernel language.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import fusewright
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.kernels import KernelLanguage
from fusewright.kernels.triton import LIMITS, limits, ways, write_work
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.folders import generated_folder

NAME = "triton_interpreted"


def load(sources: Mapping[str, TritonSource]) -> tuple[Callable[..., Any], ...]:
    """Kernels that Triton interprets."""
    return tuple(
        functools.partial(
            launch,
            interpreter.load_kernel(source.text.lstrip("\n"), generated_folder(), name),
            tuple(source.blocks.values()),
            source.first_values,
        )
        for name, source in sources.items()
    )


def launch(kernel: Any, blocks: tuple[int, ...], first_values: bytes, *arguments: Any) -> None:
    """Run as many programs as the last argument says."""
    *own, programs = arguments
    if first_values:
        own = interpreter.with_table(first_values, own)
    if programs:
        kernel[(programs,)](*own, *blocks)


language = KernelLanguage(name=NAME, write=write_work, load=load, limits=LIMITS)
_CHOOSING = limits(has_choices=True)
with_ways = KernelLanguage(
    name=NAME,
    write=write_work,
    load=load,
    ways=functools.partial(ways, limits=_CHOOSING),
    limits=_CHOOSING,
)
"""The language in which several ways to do the same work are written."""

fusewright.register_backend(kernel_backend(language), name=NAME)
