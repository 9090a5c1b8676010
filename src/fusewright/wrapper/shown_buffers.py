"""The buffers that a native plan has to hold as tensors, and not as addresses."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fusewright.ir.forms import buffers_overwritten, buffers_read
from fusewright.ir.kernel import Kernel
from fusewright.ir.lines import (
    AssertLayout,
    CallChoice,
    CallKernel,
    DefineChoice,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Reuse,
)
from fusewright.wrapper.choices import kernels_launched, launches_kernels_only


def given_addresses(kernels: Mapping[str, Kernel], languages: Container[str]) -> set[str]:
    """The kernels, of these languages, that are given no more of their tensors than addresses, and
    no values of numbers.
    """
    return {
        name
        for name, kernel in kernels.items()
        if kernel.language in languages and not kernel.takes_values
    }


def shown_whole(
    lines: Sequence[Line], kernels: Container[str], choices: Mapping[str, DefineChoice]
) -> frozenset[str]:
    """Buffers that others than `kernels`, which are given addresses, use as they are laid out."""
    shown: list[str] = []
    for line in lines:
        match line:
            case CallKernel(launch=launch) if launch.kernel in kernels:
                pass
            case CallChoice(choice=name) if _is_given_addresses(choices[name], kernels):
                pass
            case AssertLayout() | EnsureLayout() | Place() | Reuse() | Free() | FreeIfNotReused():
                pass
            case _:
                shown += (*buffers_read(line), *buffers_overwritten(line))
    return frozenset(shown)


def _is_given_addresses(choice: DefineChoice, kernels: Container[str]) -> bool:
    launched = kernels_launched([choice])
    return launches_kernels_only(choice) and all(kernel in kernels for kernel in launched)
