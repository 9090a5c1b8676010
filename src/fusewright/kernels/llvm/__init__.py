"""The CPU target: kernels as LLVM IR text with explicit vectors.

Read in this order: `plan` (lanes, units of work), `emit` (the kernel), `loops`, `reduce`, `values`,
`memory`, `indexing`; below them `scope` (where code is being written), `operations`, `storage`,
`mathematics` and `builder` (LLVM IR text).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from fusewright.ir.group import Group, Reduce
from fusewright.ir.index import Symbol
from fusewright.ir.kernel import CpuFacts
from fusewright.ir.limits import Limits
from fusewright.ir.products import product_of_loads
from fusewright.kernels.analysis import SizeHints, rows_of
from fusewright.kernels.language import Candidate, Implementation, Work
from fusewright.kernels.llvm.emit import write_kernel
from fusewright.kernels.llvm.plan import KernelPlan, make_plan, near_plans, possible_plans
from fusewright.kernels.llvm.product_plan import (
    PRODUCT_TYPES,
    ProductTiling,
    tiling_of,
    tilings_to_try,
)
from fusewright.kernels.llvm.products import write_product
from fusewright.kernels.split_groups import in_chunks
from fusewright.records import replace
from fusewright.runtime.llvm_engine import CpuTarget

__all__ = ["PRODUCT_TYPES", "Work", "candidates", "ways", "write"]

SMALL: Final = 1 << 14
"""Elements for which it does not matter how they are gone through."""

NEAR: Final = 1.25
"""Two ways to lay a group over lanes whose costs differ by less are both worth measuring."""

TRIED_PLANS: Final = 3
"""Choices of lanes that tuning tries: those that should cost least."""

MANY_UNITS: Final = 1 << 20
"""Stands for a symbolic number of units."""

TRIED_GRAINS: Final = (4.0, 0.25)
"""How many times as much work a thread should have at least, in what tuning tries."""


def write(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> tuple[str, Work]:
    """The source of a group under canonical names, whose arguments are `tensors` and then
    `sizes`."""
    product = product_of_loads(group)
    tiling = None if product is None else tiling_of(product, target)
    if product is not None and tiling is not None:
        return write_product(group, product, tensors, sizes, tiling, target), _work(tiling.plan)
    plan = make_plan(group, target)
    return write_kernel(group, tensors, sizes, plan, target), _work(plan)


def ways(group: Group, hints: SizeHints, target: CpuTarget, limits: Limits) -> list[Implementation]:
    """The ways to do the work of a group, where it is unclear which is fastest: whole or in chunks,
    and by vectors of other loops.
    """
    own = partial(write, target=target)
    found = [Implementation(name="whole", write=own, parts=(group,))]
    reduces = any(isinstance(a, Reduce) for stage in group.stages for a in stage.actions)
    if not reduces or product_of_loads(group) is not None:
        return found
    rows, length = rows_of(group, hints)
    if rows * length < SMALL:
        return found
    if limits.leaves_open(rows, length):
        found += in_chunks(group, limits.chunks, own)
    if near_plans(group, target, NEAR) > 1:
        found.append(
            Implementation(
                name="lanes", write=partial(_write_otherwise, target=target), parts=(group,)
            )
        )
    return found


def _write_otherwise(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> tuple[str, Work]:
    """The source of a group whose vectors run along other loops than those that seem best."""
    _, plan = islice(possible_plans(group, target), 2)
    return write_kernel(group, tensors, sizes, plan, target), _work(plan)


def candidates(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], target: CpuTarget
) -> list[Candidate]:
    """The ways to write a group that tuning tries, that of `write` first."""
    product = product_of_loads(group)
    if product is not None and tiling_of(product, target) is not None:
        tilings = dict.fromkeys(tilings_to_try(product, target))
        return [
            Candidate(
                _words(tiling),
                write_product(group, product, tensors, sizes, tiling, target),
                _work(tiling.plan),
            )
            for tiling in tilings
        ]
    return [
        Candidate(name, write_kernel(group, tensors, sizes, plan, target), _work(plan))
        for name, plan in _plans_to_try(group, target)
    ]


def _plans_to_try(group: Group, target: CpuTarget) -> Iterator[tuple[str, KernelPlan]]:
    """Plans by what sets them apart, in words: other lanes, and more or less work a thread."""
    first: KernelPlan | None = None
    for plan in islice(possible_plans(group, target), TRIED_PLANS):
        first = first or plan
        lane = plan.outer_lane
        along = "the inner loops" if lane is None else lane.name
        yield f"lanes along {along}", plan
    assert first is not None
    for factor in TRIED_GRAINS:
        plan = replace(first, grain=max(1, round(first.grain * factor)))
        if _most_threads(plan) != _most_threads(first):
            yield f"{factor:g} times the work a thread", plan


def _most_threads(plan: KernelPlan) -> int:
    """How many threads a launch can use; symbolic units count as many."""
    units = int(plan.units) if plan.units.is_constant else MANY_UNITS
    return max(1, units // plan.grain)


def _words(tiling: ProductTiling) -> str:
    """A few words that tell a tiling from others."""
    return (
        f"{tiling.form.value}, tile {tiling.rows} x {tiling.columns}, depth {tiling.depth}, "
        f"{tiling.block} rows a unit"
    )


def _work(plan: KernelPlan) -> Work:
    return Work(plan.units, CpuFacts(grain=plan.grain))
