"""Several ways to write one group, where it is not clear which is fastest: a choice among kernels.

A language says which there are (`KernelLanguage.ways`); here they become the lines of a
`DefineChoice`, over the arguments of the group's own kernel, which is the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.ir.canonical import CanonicalNames, hash_of
from fusewright.ir.forms import print_lines
from fusewright.ir.group import Group, Reduce
from fusewright.ir.index import RealSymbol
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.limits import Limits
from fusewright.ir.lines import (
    CALLER,
    Allocate,
    Alternative,
    CallChoice,
    CallKernel,
    DefineChoice,
    Free,
    Line,
)
from fusewright.ir.neutral import NEUTRAL_ELEMENTS
from fusewright.kernels.analysis import SizeHints
from fusewright.kernels.language import Implementation
from fusewright.kernels.split_groups import tiles_of
from fusewright.records import replace

Define = Callable[[Group, Implementation], tuple[Kernel, Launch]]
"""Writes a kernel for a part of a way, and says how it is launched."""


def define_choice(
    name: str, names: CanonicalNames, ways: Sequence[Implementation], define: Define
) -> tuple[DefineChoice, dict[str, Kernel]] | None:
    """The choice among ways to do the work of a group whose canonical names are `names`, and their
    kernels by name. None: they come to the same kernels, or a number that the group takes is no
    size.
    """
    sizes = tuple(canonical for canonical, _ in names.sizes)
    if any(isinstance(symbol, RealSymbol) for symbol in sizes):
        return None
    kernels: dict[str, Kernel] = {}
    alternatives: dict[str, Alternative] = {}
    for way in ways:
        lines: list[Line] = [Allocate(buffer=buffer) for buffer in way.temporaries]
        for part in way.parts:
            kernel, launch = define(part, way)
            kernels[kernel.name] = kernel
            lines.append(CallKernel(launch=replace(launch, device=CALLER, origins=())))
        lines += [Free(name=buffer.name) for buffer in way.temporaries]
        text = print_lines(line for line in lines if not isinstance(line, CallKernel))
        keys = [kernels[own.launch.kernel].key for own in lines if isinstance(own, CallKernel)]
        alternatives.setdefault(
            hash_of(text, *keys), Alternative(name=way.name, lines=tuple(lines))
        )
    if len(alternatives) < 2:
        return None
    choice = DefineChoice(
        name=name,
        key=hash_of(*alternatives),
        arguments=names.arguments,
        sizes=sizes,  # type: ignore[arg-type]
        alternatives=tuple(alternatives.values()),
    )
    return choice, kernels


def call_choice(choice: DefineChoice, group: Group, names: CanonicalNames) -> CallChoice:
    """One call, with this group's buffers, sizes and origins."""
    return CallChoice(
        choice=choice.name,
        buffers=names.buffers,
        sizes=tuple(symbol.index for _, symbol in names.sizes),
        device=group.device,
        origins=group.origins,
    )


def is_left_open(
    group: Group, ways: Sequence[Implementation], limits: Limits, hints: SizeHints
) -> bool:
    """Whether scheduling left a group whole, though few rows are long, and it cannot be cut now."""
    kinds = {a.kind for stage in group.stages for a in stage.actions if isinstance(a, Reduce)}
    if not kinds & NEUTRAL_ELEMENTS.keys() or any(len(way.parts) != 1 for way in ways):
        return False
    tiles, elements = tiles_of(group, limits, hints)
    return tiles < limits.reductions and limits.leaves_open(tiles, elements)


def names_of_canonical(names: CanonicalNames) -> CanonicalNames:
    """The names of a group that has those of `names` already."""
    return replace(
        names,
        buffers=tuple(argument.name for argument in names.arguments),
        sizes=tuple((canonical, canonical) for canonical, _ in names.sizes),
    )
