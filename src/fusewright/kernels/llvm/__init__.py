"""The CPU target: kernels as LLVM IR text with explicit vectors.

Read in this order: `plan` (lanes, units of work), `emit` (the kernel), `loops`, `reduce`, `values`,
`memory`, `indexing`; below them `scope` (where code is being written), `operations`, `storage`,
`mathematics` and `builder` (LLVM IR text).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group
from fusewright.ir.index import Symbol
from fusewright.ir.kernel import CpuFacts
from fusewright.kernels.language import Work
from fusewright.kernels.llvm.emit import write_kernel
from fusewright.kernels.llvm.plan import make_plan
from fusewright.runtime.llvm_engine import CpuTarget

__all__ = ["Work", "write"]


def write(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> tuple[str, Work]:
    """The source of a group under canonical names, whose arguments are `tensors` and then
    `sizes`."""
    plan = make_plan(group, target)
    work = Work(plan.units, CpuFacts(grain=plan.grain))
    return write_kernel(group, tensors, sizes, plan, target), work
