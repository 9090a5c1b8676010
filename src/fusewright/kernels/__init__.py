"""From fused groups to kernels: one definition for each structure, one launch for each group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from fusewright.context import CompileContext
from fusewright.errors import UnsupportedOperator
from fusewright.ir.canonical import (
    CanonicalNames,
    canonical_group,
    canonical_names,
    hash_of,
    structural_key,
    structural_text,
)
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import CpuFacts, Kernel, Launch
from fusewright.ir.verify import verify_renamed_group
from fusewright.kernels import llvm
from fusewright.kernels.llvm import Work
from fusewright.records import record
from fusewright.runtime.cpu import load_kernels
from fusewright.runtime.guard_pages import STRUCTURES
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.runtime.targets import Loader

__all__ = ["KernelLanguage", "KernelSet", "Work", "define_kernels"]


@record(kw_only=True)
class KernelLanguage:
    """What kernels are written in."""

    name: str
    """Begins the names of kernels, and leads generated modules to `load`."""

    write: Callable[[Group, Sequence[str], Sequence[Symbol]], tuple[str, Work]]
    """The source for a group under canonical names, whose arguments are the tensors of these names
    and then these sizes; and how much work a launch is.
    """

    load: Loader
    """Makes kernels of sources."""

    target: str = ""
    """What sources are written for, where the language has several targets: kernels of two never
    share a name, since they cut their work into other units.
    """


@record(kw_only=True)
class KernelSet:
    """The kernels of one schedule."""

    definitions: tuple[Kernel, ...]
    """In order of first use."""

    launches: Mapping[int, Launch]
    """By the place of the group among the schedule's steps."""


def define_kernels(
    schedule: Schedule, context: CompileContext, language: KernelLanguage | None = None
) -> KernelSet:
    """Write each structure of group once, and say how each group launches it. `language`: LLVM IR
    for this machine by default.
    """
    if language is None:
        language = _language_of_this_machine(schedule, context)
    written: dict[str, tuple[Kernel, Index]] = {}
    launches: dict[int, Launch] = {}
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, Group):
            continue
        names = canonical_names(step)
        structure = structural_key(step, names, language.target)
        if structure not in written:
            written[structure] = _define(step, names, structure, language)
            if context.options.verify:
                verify_renamed_group(step, names)
        kernel, units = written[structure]
        launches[position] = _launch(kernel, step, names, units)
    return KernelSet(definitions=tuple(kernel for kernel, _ in written.values()), launches=launches)


def _language_of_this_machine(schedule: Schedule, context: CompileContext) -> KernelLanguage:
    """LLVM IR. UnsupportedOperator: a tensor is on a device whose memory the CPU does not reach.
    Tensors on meta have none, and no kernel takes them.
    """
    devices = {buffer.layout.device for buffer in schedule.program.buffers().values()} - {"meta"}
    groups = [step for step in schedule.steps if isinstance(step, Group)]
    devices |= {one.layout.device for group in groups for one in (*group.reads, *group.writes)}
    if others := sorted(devices - {"cpu"}):
        raise UnsupportedOperator(
            f"tensors on {', '.join(others)}: no kernels are written for that device yet"
        )
    name = context.options.kernel_target
    write = functools.partial(llvm.write, target=cpu_target(name))
    target = "" if name == "auto" else name
    return KernelLanguage(name="cpu", write=write, load=load_kernels, target=target)


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
        key=hash_of(language.name, language.target, source, str(work.grain)),
        language=language.name,
        source=source,
        arguments=names.arguments,
        sizes=tuple(str(symbol) for symbol in sizes),
        facts=CpuFacts(grain=work.grain),
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
        origins=group.origins,
    )
