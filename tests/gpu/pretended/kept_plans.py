"""Plans of graphs on a GPU that are kept on disk, and what is made of them again.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.kept_plans

Each graph of `tests.gpu.programs`, and both halves of their training steps, is looked for before
and behind its plan is kept. Ends with 1 if another plan is found than was made, or one for another
GPU.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import fx

import fusewright
from fusewright.aot import AtenGraph
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.fake import FakeMode
from fusewright.generation import generate_code, record_of
from fusewright.ir.text import print_schedule
from fusewright.kept_plans import keep, look_up
from tests.gpu.pretended.graphs import Compiled, leaves, moved, pretend, traced
from tests.gpu.programs import PROGRAMS

GPUS = [torch.device("cuda", number) for number in (0, 1)]


class Keeper:
    """A backend that keeps a plan of each graph on one GPU, and looks for it again."""

    def __init__(self, gpu: torch.device) -> None:
        self.gpu = gpu
        self.found: list[bool] = []
        self.wrong: list[str] = []
        self.refusals: list[str] = []

    def __call__(self, module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        mode = FakeMode()
        fakes = [moved(example, mode, gpu=self.gpu) for example in examples]
        context = CompileContext(options=Options(verify=False, graph_cache=True))
        for half, graph in traced(module, fakes, context, self.gpu).items():
            self.check(graph, context, half)
        raise Compiled

    def check(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        names = dict(context.counters)  # Which the stages count on.
        before = look_up(graph, context, half=half, has_language=False)
        if str(self.gpu) in repr([node.meta.get("val") for node in graph.graph.nodes]):
            self.found.append(before.kept is not None)  # Others are alike on all GPUs.
        code = generate_code(graph, context, is_whole=not half)
        outcome = keep(before, code.plan, record_of(code, context, "", "", {}))
        context = CompileContext(options=context.options, counters=names)
        after = look_up(graph, context, half=half, has_language=False)
        if after.kept is None:
            self.refusals.append(outcome)
            return
        plan = after.kept.plan
        schedules = [
            print_schedule(schedule, origins=True)
            for schedule in (code.schedule, after.kept.record.schedule)
        ]
        if (plan.lines, plan.emitted) != (code.lines, code.emitted) or len({*schedules}) > 1:
            self.wrong.append(outcome)


def main() -> int:
    pretend()
    refusals: list[str] = []
    wrong = kept = 0
    for name, case in PROGRAMS.items():
        for gpu, is_again in ((GPUS[0], False), (GPUS[0], True), (GPUS[1], False)):
            keeper = Keeper(gpu)
            try:
                inputs = leaves(case.inputs(torch.device("cpu")), True)
                fusewright.compile(case.function, backend=keeper)(*inputs)
            except Compiled:
                pass
            is_found = not keeper.refusals and is_again
            faults = [*keeper.wrong, *(f"found: {f}" for f in keeper.found if f != is_found)]
            for fault in faults:
                print(f"{name} on {gpu}: {fault}")
            wrong += len(faults)
            kept += len(keeper.found) - len(keeper.refusals)
            refusals += keeper.refusals
    print(*sorted({*refusals}), f"{kept} plans kept, {wrong} wrong", sep="\n")
    return int(wrong > 0 or not kept)


if __name__ == "__main__":
    sys.exit(main())
