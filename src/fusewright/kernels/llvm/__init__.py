"""The CPU target: kernels as LLVM IR text with explicit vectors.

Read in this order: `plan` (lanes, units of work), `emit` (the kernel), `loops`, `reduce`, `values`,
`memory`, `indexing`; below them `scope` (where code is being written), `operations`, `storage`,
`mathematics` and `builder` (LLVM IR text).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.group import Group
from fusewright.ir.index import Index, Symbol
from fusewright.kernels.llvm.emit import write_kernel
from fusewright.kernels.llvm.plan import make_plan
from fusewright.records import record
from fusewright.runtime.llvm_engine import CpuTarget

__all__ = ["Work", "write"]


@record
class Work:
    """How much there is to do in one launch."""

    units: Index
    """Units of work, over canonical sizes."""

    grain: int
    """The fewest units worth a thread of their own."""


def write(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> tuple[str, Work]:
    """The source of a group under canonical names, whose arguments are `tensors` and then
    `sizes`."""
    plan = make_plan(group, target)
    return write_kernel(group, tensors, sizes, plan, target), Work(plan.units, plan.grain)
