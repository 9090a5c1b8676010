"""From fused groups to kernels: one definition for each structure, one launch for each group.

What a group is written in follows from the device that it runs on (`targets`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.context import CompileContext
from fusewright.ir.canonical import (
    CanonicalNames,
    canonical_group,
    canonical_names,
    hash_of,
    structural_key,
    structural_text,
)
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import Index
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.verify import verify_renamed_group
from fusewright.kernels.language import KernelLanguage, Work
from fusewright.kernels.targets import TARGETS, Languages, Target
from fusewright.records import record
from fusewright.runtime.guard_pages import STRUCTURES
from fusewright.runtime.memory_checks import MemoryChecks

__all__ = [
    "TARGETS",
    "KernelLanguage",
    "KernelSet",
    "Languages",
    "Target",
    "Work",
    "define_kernels",
]


@record(kw_only=True)
class KernelSet:
    """The kernels of one schedule."""

    definitions: tuple[Kernel, ...]
    """The kernels, in order of first use."""

    launches: Mapping[int, Launch]
    """The launches, by the place of the group among the schedule's steps."""


def define_kernels(
    schedule: Schedule, context: CompileContext, languages: Languages | None = None
) -> KernelSet:
    """Write each structure of group once, and say how each group launches it. `languages`: by
    default that of each group's device.
    """
    languages = languages or Languages(context.options)
    languages.require(buffer.layout.device for buffer in schedule.program.buffers().values())
    written: dict[str, tuple[Kernel, Index]] = {}
    launches: dict[int, Launch] = {}
    for position, group in enumerate(schedule.works):
        if not isinstance(group, Group):
            continue
        own = languages.of(group.device)
        names = canonical_names(group)
        structure = structural_key(group, names, own.target)
        if structure not in written:
            written[structure] = _define(group, names, structure, own)
            if context.options.verify:
                verify_renamed_group(group, names)
        kernel, units = written[structure]
        launches[position] = _launch(kernel, group, names, units)
    return KernelSet(definitions=tuple(kernel for kernel, _ in written.values()), launches=launches)


def _define(
    group: Group, names: CanonicalNames, structure: str, language: KernelLanguage
) -> tuple[Kernel, Index]:
    """The kernel of a structure first met in `group`, and the units of its work over canonical
    sizes.
    """
    sizes = tuple(canonical for canonical, _ in names.sizes)
    tensors = [argument.name for argument in names.arguments]
    source, work = language.write(canonical_group(group, names), tensors, sizes)
    kernel = Kernel(
        name=f"{language.name}_{group.name}_{structure[:8]}",
        key=hash_of(language.name, language.target, source, work.facts.identity),
        language=language.name,
        source=source,
        arguments=names.arguments,
        sizes=tuple(str(symbol) for symbol in sizes),
        facts=work.facts,
    )
    if MemoryChecks.chosen().guard_pages:
        STRUCTURES[kernel.name] = structural_text(group, names)
    return kernel, work.units


def _launch(kernel: Kernel, group: Group, names: CanonicalNames, units: Index) -> Launch:
    """One call, with this group's buffers, sizes and origins."""
    own: dict[object, Index] = {canonical: symbol.index for canonical, symbol in names.sizes}
    return Launch(
        kernel=kernel.name,
        buffers=names.buffers,
        sizes=tuple(symbol.index for _, symbol in names.sizes),
        units=units.substitute(own),  # type: ignore[arg-type]
        device=group.device,
        origins=group.origins,
    )
