"""Steps of optimisers on a pretended GPU: launches for many parameters, and no copies.

    LD_PRELOAD=device.so python -m tests.gpu.pretended.optimizers

Prints a line a step; ends with 1 if one takes more launches than 10, or calls the library.
"""

from __future__ import annotations

import contextlib
import sys

import torch

import fusewright
from fusewright.aot import AtenGraph
from fusewright.context import CompileContext
from fusewright.ir.kernel import Kernel
from fusewright.ir.program import CallOperator
from fusewright.lower import lower
from tests.gpu.pretended.graphs import ARCHITECTURE, Collector, Compiled, pretend
from tests.gpu.traced_counts import launches_of
from tests.gpu.traced_programs import code_of, failures_of

PARAMETERS = 100
MOST = 10


class Counter(Collector):
    """Counts the launches of a step on the GPU, those that write tables of arguments among them,
    and its library calls.
    """

    launches = calls = 0

    def compile(self, graph: AtenGraph, context: CompileContext, half: str) -> None:
        scheduled, kernels = code_of(lower(graph, context))
        launches = {id(launch): launch for launch in kernels.launches.values()}.values()
        facts = {kernel.name: kernel.facts for kernel in kernels.definitions}
        self.launches = sum(launches_of(launch, facts[launch.kernel]) for launch in launches)
        self.calls = sum(isinstance(work, CallOperator) for work in scheduled.works)
        self.kernels |= {kernel.key: kernel for kernel in kernels.definitions}


def step(kind: str, foreach: bool) -> Counter:
    """Compile one step over parameters of many sizes."""
    sizes = [(3 + n % 7, 1 + n % 31) for n in range(PARAMETERS)]
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = getattr(torch.optim, kind)(parameters, lr=1e-3, foreach=foreach)
    optimizer.step()
    counter = Counter(kind)
    with contextlib.suppress(Compiled):
        fusewright.compile(optimizer.step, backend=counter)()
    return counter


def main() -> int:
    pretend()
    wrong = 0
    kernels: dict[str, Kernel] = {}
    for kind in ("SGD", "AdamW"):
        for foreach in (False, True):
            counter = step(kind, foreach)
            print(f"{kind} {foreach}: {counter.launches} launches, {counter.calls} calls")
            wrong += not 0 < counter.launches <= MOST or counter.calls > 0
            kernels |= counter.kernels
    for failure in failures_of(kernels.values(), (ARCHITECTURE,)):
        wrong += 1
        print(failure)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
