"""Programs as they are on a GPU, compiled without one, and their plans, which are kept on disk.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.programs

Each graph of `tests.gpu.programs`, in both halves of its training step, is verified after each
stage; its plan is kept, and looked for when the graph is traced again, and when it is traced on
another GPU; and its kernels become machine code for an H100. Prints what fails; ends with 1 if
another plan is found than was made, or one for another GPU, or if a kernel does not compile.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

import fusewright
from fusewright.aot import AtenGraph
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.fake import FakeMode
from fusewright.generation import GeneratedCode, generate_code, record_of
from fusewright.ir.kernel import Kernel
from fusewright.ir.text import print_schedule
from fusewright.kept_plans import KeptPlan, Search, keep, look_up
from fusewright.records import replace
from tests.gpu.pretended.graphs import ARCHITECTURE, CPU, Compiled, moved, pretend, traced
from tests.gpu.programs import PROGRAMS
from tests.gpu.programs import Program as Case
from tests.gpu.traced_programs import check_module, failures_of

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)

VERIFIED, KEPT = Options(verify=True), Options(graph_cache=True)
"""For the stages, and for searches: plans that are verified are not kept."""

Visit = Callable[[AtenGraph, CompileContext, str], None]
"""Looks at the graph of a half, "" where it is whole."""


class Checks:
    """What is made of one program, and what is wrong with it."""

    def __init__(self) -> None:
        self.code: dict[str, GeneratedCode] = {}
        """The code of each half."""

        self.refusals: dict[str, str] = {}
        """Why the plan of a half is not kept."""

        self.wrong: list[str] = []

    def make(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        """Make the code of a half, and keep its plan."""
        before = search(graph, context, half)
        if before.kept is not None:
            self.wrong.append(f"{half}: found before it was made")
        code = self.code[half] = generate_code(graph, context, is_whole=not half)
        check_module(code.schedule.program.name, code.lines, code.emitted)
        outcome = keep(before, code.plan, record_of(code, context, "", "", {}))
        if outcome.startswith("not kept"):
            self.refusals[half] = outcome

    def find(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        """Look for the plan of a half that was made, in a trace of its own."""
        kept = search(graph, context, half).kept
        if (kept is None) != (half in self.refusals):
            self.wrong.append(f"{half}: {'not ' * (kept is None)}found again")
        elif kept is not None and not is_plan_of(kept, self.code[half]):
            self.wrong.append(f"{half}: another plan is found than was made")

    def find_elsewhere(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        """Look for it as it is on the other GPU. Graphs that name none are alike on all."""
        names_it = str(FIRST) in repr([node.meta.get("val") for node in graph.graph.nodes])
        if names_it and search(graph, context, half).kept is not None:
            self.wrong.append(f"{half}: one for another GPU is found")


def search(graph: AtenGraph, context: CompileContext, half: str) -> Search:
    return look_up(graph, replace(context, options=KEPT), half=half, has_language=False)


def is_plan_of(kept: KeptPlan, code: GeneratedCode) -> bool:
    """Whether a plan that was found is that of this code."""
    schedules = {
        print_schedule(schedule, origins=True) for schedule in (code.schedule, kept.record.schedule)
    }
    return (kept.plan.lines, kept.plan.emitted) == (code.lines, code.emitted) and (
        len(schedules) == 1
    )


def visit(case: Case, gpu: torch.device, look: Visit) -> None:
    """Trace the first graph of a training step of a program as on a GPU, and look at its halves."""

    def backend(module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        mode = FakeMode()
        fakes = [moved(example, mode, gpu=gpu) for example in examples]
        context = CompileContext(options=VERIFIED)
        for half, graph in traced(module, fakes, context, gpu).items():
            look(graph, context, half)
            context = context.again()
        raise Compiled

    inputs = (
        value.clone().requires_grad_() if value.is_floating_point() else value
        for value in case.inputs(CPU)
    )
    with contextlib.suppress(Compiled):
        fusewright.compile(case.function, backend=backend)(*inputs)


def main() -> int:
    pretend()
    refusals: set[str] = set()
    kernels: dict[str, Kernel] = {}
    failures = kept = 0
    for name, case in PROGRAMS.items():
        checks = Checks()
        try:
            visit(case, SECOND, checks.make)
            visit(case, SECOND, checks.find)
            visit(case, FIRST, checks.find_elsewhere)
        except Exception:
            checks.wrong.append(traceback.format_exc(limit=-8))
        for fault in checks.wrong:
            print(f"{name} FAILS: {fault}", flush=True)
        failures += len(checks.wrong)
        refusals |= {*checks.refusals.values()}
        kept += len(checks.code) - len(checks.refusals)
        kernels |= {
            kernel.key: kernel
            for code in checks.code.values()
            for kernel in code.kernels.definitions
        }
    for failure in failures_of(kernels.values(), (ARCHITECTURE,)):
        failures += 1
        print(failure)
    print(*sorted(refusals), sep="\n")
    print(f"{kept} plans kept, {len(kernels)} kernels, {failures} failures")
    return int(failures > 0 or not kept)


if __name__ == "__main__":
    sys.exit(main())
