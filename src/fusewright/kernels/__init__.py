"""From fused groups to kernels: one definition for each structure, one launch for each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusewright.context import CompileContext
from fusewright.ir.canonical import (
    CanonicalNames,
    canonical_group,
    canonical_names,
    structural_key,
)
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import Index
from fusewright.ir.kernel import Kernel, Launch
from fusewright.kernels import llvm
from fusewright.runtime.llvm_engine import CpuTarget, cpu_target


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The kernels of one schedule."""

    definitions: tuple[Kernel, ...]
    """In order of first use."""

    launches: Mapping[int, Launch]
    """By the place of the group among the schedule's steps."""


def define_kernels(schedule: Schedule, context: CompileContext) -> KernelSet:
    """Write each structure of group once, and say how each group launches it."""
    target = cpu_target(context.options.kernel_target)
    written: dict[str, tuple[Kernel, llvm.Work]] = {}
    launches: dict[int, Launch] = {}
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, Group):
            continue
        names = canonical_names(step)
        key = structural_key(step, names)
        if key not in written:
            written[key] = _define(step, names, key, target)
        kernel, work = written[key]
        launches[position] = _launch(kernel, names, work)
    return KernelSet(definitions=tuple(kernel for kernel, _ in written.values()), launches=launches)


def _define(
    group: Group, names: CanonicalNames, key: str, target: CpuTarget
) -> tuple[Kernel, llvm.Work]:
    """The kernel of a structure first met in `group`."""
    sizes = tuple(canonical for canonical, _ in names.sizes)
    source, work = llvm.write(
        canonical_group(group, names),
        [argument.name for argument in names.arguments],
        sizes,
        target,
    )
    kernel = Kernel(
        name=f"cpu_{group.name}_{key[:8]}",
        key=key,
        device="cpu",
        source=source,
        arguments=names.arguments,
        sizes=tuple(str(symbol) for symbol in sizes),
        origins=group.origins,
    )
    return kernel, work


def _launch(kernel: Kernel, names: CanonicalNames, work: llvm.Work) -> Launch:
    """One call, with this group's buffers and sizes."""
    own: dict[object, Index] = {canonical: symbol.index for canonical, symbol in names.sizes}
    return Launch(
        kernel=kernel.name,
        buffers=names.buffers,
        sizes=tuple(symbol.index for _, symbol in names.sizes),
        iterations=work.units.substitute(own),  # type: ignore[arg-type]
        grain=work.grain,
    )
