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
from fusewright.ir.products import matrix_product
from fusewright.kernels.language import Work
from fusewright.kernels.llvm.emit import write_kernel
from fusewright.kernels.llvm.plan import make_plan
from fusewright.kernels.llvm.product_plan import tiling_of
from fusewright.kernels.llvm.products import write_product
from fusewright.runtime.llvm_engine import CpuTarget

__all__ = ["Work", "write"]


def write(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> tuple[str, Work]:
    """The source of a group under canonical names, whose arguments are `tensors` and then
    `sizes`."""
    product = matrix_product(group)
    tiling = None if product is None else tiling_of(product, target)
    if product is not None and tiling is not None:
        work = Work(tiling.plan.units, CpuFacts(grain=tiling.plan.grain))
        return write_product(group, product, tensors, sizes, tiling, target), work
    plan = make_plan(group, target)
    work = Work(plan.units, CpuFacts(grain=plan.grain))
    return write_kernel(group, tensors, sizes, plan, target), work
