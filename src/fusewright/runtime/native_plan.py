"""Native plans: what surrounds the kernels of a graph, run by one C function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusewright.native import CallPlan
from fusewright.records import record
from fusewright.runtime import profiling as profiling  # tells profilers of plans
from fusewright.runtime.loader import LoadedModule
from fusewright.runtime.memory_checks import MemoryChecks

Operation = tuple[str, int, tuple[int | None, ...]]
"""Its name, the line of the Python module that does the same, and its operands."""


@record(kw_only=True)
class NativePlan:
    """The parts of a `CallPlan`."""

    operations: tuple[Operation, ...]
    inputs: int
    slots: int
    numbers: tuple[int, ...]
    """The values of the numbers when a call begins."""

    blocks: Mapping[str, NativePlan]
    """Plans of blocks that conditions and loops run, by the names that constants have for them."""

    constants: tuple[str, ...]
    """Expressions that the Python module's globals give a meaning."""


class NoNativePlan(Exception):
    """The Python module runs instead; says why."""


def load_plan(plan: NativePlan, module: LoadedModule) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The function that runs the plan in place of its Python twin, `module`. NoNativePlan: it
    cannot be run.
    """
    if MemoryChecks.chosen() != MemoryChecks():
        raise NoNativePlan("checks of memory are on")
    blocks = {name: load_plan(block, module) for name, block in plan.blocks.items()}
    text = f"({', '.join(plan.constants)}{',' if plan.constants else ''})"
    constants = eval(text, module.variables, {**module.variables, **blocks} if blocks else None)
    try:
        return CallPlan(
            plan.operations,
            plan.inputs,
            plan.slots,
            plan.numbers,
            constants,
            module.variables,
            str(module.path),
        )
    except NotImplementedError as error:
        raise NoNativePlan(str(error)) from error
