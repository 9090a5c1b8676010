"""Programs that train on two processes: `torchrun --nproc-per-node 2 programs.py FILE` runs each
with `DistributedDataParallel`, in eager and compiled, and writes to FILE what differs. With NCCL
where each process has a GPU, else with gloo on the CPU.

Buckets are so small that backward is split, where a scenario does not say otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import traceback
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import fusewright
from fusewright.runtime import llvm_engine

STEPS = 5

RANK = int(os.environ.get("LOCAL_RANK", "0"))
ON_GPUS = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "2"))
BACKEND = "nccl" if ON_GPUS else "gloo"
DEVICE = torch.device("cuda", RANK) if ON_GPUS else torch.device("cpu")

SMALL_BUCKETS = {"bucket_cap_mb": 0.001}
"""A thousand bytes: a layer or two."""


class Model(nn.Module):
    """A perceptron with running statistics, and parts that scenarios turn on."""

    def __init__(self, *, unused: bool = False, breaks: bool = False, again: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 4)
        self.spare = nn.Linear(32, 4) if unused else None
        self.breaks, self.again = breaks, again
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.first(x)))
        if self.breaks:
            fusewright.graph_break()
        if self.again:
            hidden = checkpoint(self.second, hidden, use_reentrant=False)
        else:
            hidden = self.second(hidden)
        if self.spare is not None and x.shape[0] == 3:
            return self.spare(F.relu(hidden))
        return self.last(F.relu(hidden))


def tied() -> nn.Module:
    """A model whose first and last layers share their weight."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 4))
    model[2].weight = model[0].weight
    return model


def frozen() -> nn.Module:
    """A model of which one layer is not trained."""
    model = Model()
    model.second.requires_grad_(False)
    return model


class TwoResults(nn.Module):
    """A model of whose results one has no gradient in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second, self.third = nn.Linear(32, 4), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        second, third = self.second(hidden), self.third(hidden)
        return second if x.shape[0] == 3 else second + third


def losses(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    accumulate: Callable[[], Any] = contextlib.nullcontext,
    calls: int = 1,
) -> Tensor:
    """The loss of a batch, after a backward; of `calls` calls of the model."""
    with accumulate():
        loss = sum(F.mse_loss(model(x + number), y) for number in range(calls))
        assert isinstance(loss, Tensor)
        loss.backward()
    return loss.detach()


def batches(rank: int, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Other numbers on each rank."""
    generator = torch.Generator().manual_seed(rank)
    for size in sizes:
        yield (
            torch.randn(size, 8, generator=generator).to(DEVICE),
            torch.randn(size, 4, generator=generator).to(DEVICE),
        )


def train(
    make: Callable[[], nn.Module],
    wrap: Callable[[nn.Module], tuple[Any, nn.Module]],
    sizes: list[int],
    *,
    hook: Any = None,
    accumulates: bool = False,
    joins: bool = False,
    calls: int = 1,
) -> dict[str, list[Tensor]]:
    """The loss of each step, and parameters and buffers after the last.

    `wrap` gives the module that is called and the one that reduces gradients.
    """
    torch.manual_seed(0)
    called, reducer = wrap(make().to(DEVICE))
    if hook is not None:
        reducer.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(reducer.parameters(), lr=0.1)
    found = []
    with Join([reducer]) if joins else contextlib.nullcontext():
        for number, (x, y) in enumerate(batches(dist.get_rank(), sizes)):
            waits = accumulates and number % 2 == 0
            accumulate = reducer.no_sync if waits else contextlib.nullcontext
            found.append(losses(called, x, y, accumulate, calls))
            if not waits:
                optimizer.step()
                optimizer.zero_grad()
    return {
        "losses": found,
        "parameters": [one.detach().clone() for one in reducer.parameters()],
        "buffers": [one.clone() for one in reducer.buffers()],
    }


AROUND, GRAPH, WITHIN = "compiled_around", "graph_split", "compiled_within"

VARYING = [[5, 5, 5, 3, 5]] * 2
"""Sizes of batches, the same on both ranks, of which one is another: it is compiled for any."""

SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {"sizes": VARYING, "ways": (AROUND, GRAPH, WITHIN, "function_compiled")},
    "a static graph": {"ddp": {"static_graph": True}, "ways": (AROUND, GRAPH)},
    "unused parameters": {
        "make": lambda: Model(unused=True),
        "ddp": {"find_unused_parameters": True},
        "sizes": VARYING,
        "ways": (AROUND, GRAPH, WITHIN, "function_compiled"),
    },
    "unused parameters of a static graph": {
        "make": lambda: Model(unused=True),
        "ddp": {"find_unused_parameters": True, "static_graph": True},
    },
    "results that go nowhere": {
        "make": TwoResults,
        "ddp": {"find_unused_parameters": True},
        "sizes": VARYING,
    },
    "gradients in buckets": {"ddp": {"gradient_as_bucket_view": True}, "ways": (AROUND,)},
    "buckets of the usual size": {"ddp": {"bucket_cap_mb": None}, "ways": (AROUND,)},
    "two calls before backward": {"train": {"calls": 2}, "ddp": {"broadcast_buffers": False}},
    "accumulation of gradients in buckets": {
        "train": {"accumulates": True},
        "ddp": {"gradient_as_bucket_view": True},
        "ways": (AROUND,),
    },
    "buffers of each rank": {"ddp": {"broadcast_buffers": False}, "ways": (AROUND,)},
    "accumulation": {"train": {"accumulates": True}, "ways": (AROUND, GRAPH)},
    "a hook that compresses": {"train": {"hook": fp16_compress_hook}, "ways": (AROUND,)},
    "uneven inputs": {
        "sizes": [[5] * STEPS, [5] * (STEPS - 2)],
        "train": {"joins": True},
        "ways": (AROUND,),
    },
    "sizes that differ between ranks": {
        "sizes": [[5, 6, 7, 8, 9], [5, 5, 5, 4, 2]],
        "ways": (AROUND, WITHIN, "function_compiled"),
    },
    "a graph break": {"make": lambda: Model(breaks=True), "sizes": VARYING},
    "a checkpoint": {"make": lambda: Model(again=True), "sizes": VARYING},
    "a checkpoint in a static graph": {
        "make": lambda: Model(again=True),
        "ddp": {"static_graph": True},
        "ways": (AROUND,),
    },
    "shared parameters": {"make": tied},
    "frozen parameters": {"make": frozen},
}
"""By name: how the model is made, options of DDP and of `train`, sizes of batches by rank, and how
it is compiled: around DDP, with the backward split or the graph; within it, where that sees which
parameters a graph uses or how often; and a function around it.
"""


def run(name: str) -> list[str]:
    """What differs from eager, of one scenario, however it is compiled."""
    scenario = SCENARIOS[name]
    make = scenario.get("make", Model)
    options = {**SMALL_BUCKETS, **scenario.get("ddp", {})}
    sizes = scenario.get("sizes", [[5] * STEPS] * 2)[dist.get_rank()]

    compiled: list[Any] = []

    def eager(model: nn.Module) -> tuple[Any, nn.Module]:
        reducer = DistributedDataParallel(model, **options)
        return reducer, reducer

    def compiled_around(model: nn.Module) -> tuple[nn.Module, nn.Module]:
        reducer = DistributedDataParallel(model, **options)
        compiled.append(fusewright.compile(reducer))
        return compiled[-1], reducer

    def graph_split(model: nn.Module) -> tuple[nn.Module, nn.Module]:
        reducer = DistributedDataParallel(model, **options)
        compiled.append(fusewright.compile(reducer, options={"split_for_ddp": "graph"}))
        return compiled[-1], reducer

    def function_compiled(model: nn.Module) -> tuple[Any, nn.Module]:
        reducer = DistributedDataParallel(model, **options)
        compiled.append(fusewright.compile(lambda x: reducer(x * 2) / 2))
        return compiled[-1], reducer

    def compiled_within(model: nn.Module) -> tuple[nn.Module, nn.Module]:
        compiled.append(fusewright.compile(model))
        reducer = DistributedDataParallel(compiled[-1], **options)
        return reducer, reducer

    def function(model: nn.Module) -> tuple[Any, nn.Module]:
        reducer = DistributedDataParallel(model, **options)
        return lambda x: reducer(x * 2) / 2, reducer

    arguments = scenario.get("train", {})
    wrappers = (compiled_around, graph_split, compiled_within, function_compiled)
    asked = scenario.get("ways", (AROUND, GRAPH, WITHIN))
    ways = {
        way: function if way is function_compiled else eager
        for way in wrappers
        if way.__name__ in asked
    }
    assert len(ways) == len(asked)
    written = dict.fromkeys(ways.values())  # in the same order in all processes
    expected = {way: train(make, way, sizes, **arguments) for way in written}
    differences = []
    for way, like in ways.items():
        found = train(make, way, sizes, **arguments)
        try:
            torch.testing.assert_close(found, expected[like], rtol=1e-5, atol=1e-6)
        except AssertionError as error:
            differences.append(f"{way.__name__}: {error}")
        trained = torch.cat([one.flatten() for one in found["parameters"]])
        if not any(one.training for one in fusewright.compilations(compiled[-1])):
            differences.append(f"{way.__name__}: no graph was trained")
        others = [torch.empty_like(trained) for _ in range(dist.get_world_size())]
        dist.all_gather(others, trained)
        if not all(torch.equal(other, trained) for other in others):
            differences.append(f"{way.__name__}: parameters differ between ranks")
    return differences


def order_of_reductions(split: str | None) -> list[str]:
    """What happens in the backward of a perceptron, in order: "node" where a node of autograd
    begins, a layer's or one of compiled code, "bucket" where one is handed to be reduced. `split`:
    the option; None: in eager.
    """
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    reducer = DistributedDataParallel(nn.Sequential(*layers).to(DEVICE), **SMALL_BUCKETS)
    order: list[str] = []

    def hook(group, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations as text
        order.append("bucket")
        return allreduce_hook(group, bucket)

    reducer.register_comm_hook(None, hook)
    called: Any = reducer
    if split is not None:
        called = fusewright.compile(reducer, options={"split_for_ddp": split})
    for _ in range(3):
        order.clear()
        loss = called(torch.ones(2, 16, device=DEVICE)).sum()
        for node in nodes_of(loss):
            if node.name() in ("TanhBackward0", *COMPILED_NODES):
                node.register_prehook(lambda _: order.append("node"))
        loss.backward()
    return order


def collectives_of_all_kinds(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Functional collectives, between which there is something to compute."""
    group = dist.group.WORLD
    reduced = functional.all_reduce(x @ w, "sum", group)
    turned = functional.all_reduce(x.t(), "max", group)
    rows = functional.all_gather_tensor(x.sin(), 0, group)
    columns = functional.all_gather_tensor((x * 2).sin(), 1, group)
    part = functional.reduce_scatter_tensor(x.cos(), "sum", 0, group)
    side = functional.reduce_scatter_tensor(x.exp(), "sum", 1, group)
    sent = functional.broadcast(x + 3, 1, group)
    between = (w.cos() + 1).exp()
    return reduced + between, turned * 2, rows + 1, columns * 2, part, side - 1, sent * between


def trained_between(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """A collective of what has no gradient, in a graph that has one."""
    scale = functional.all_reduce(x.detach().abs().sum(), "sum", dist.group.WORLD)
    return ((x @ w / scale).sin(),)


def exchanged(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """All to all, in parts of equal sizes and of others; coalesced collectives."""
    group = dist.group.WORLD
    rank = group.rank()
    equal = functional.all_to_all_single(x, None, None, group)
    rows = x[:3].contiguous()
    other = functional.all_to_all_single(rows, [rank + 1, rank + 1], [1, 2], group)
    sums = functional.all_reduce_coalesced([x.sin(), x[0] + 2], "sum", group)
    gathered = functional.all_gather_into_tensor_coalesced([x * 3, x[:2]], group)
    parts = functional.reduce_scatter_tensor_coalesced([x * 3, x.cos()], "sum", [0, 1], group)
    return equal + 1, other, sums[0] * 2, sums[1], *gathered, parts[0], parts[1] - w[:, :2]


def written(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Collectives that write to what they are given: results of the program, and an argument."""
    rank = dist.get_rank()
    reduced, largest, sent = x * 1, x + 1, x * 2
    dist.all_reduce(reduced)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    dist.broadcast(sent, 1)
    gathered, part = x.new_empty(8, 4), x.new_empty(2, 4)
    dist.all_gather_into_tensor(gathered, x.sin())
    dist.reduce_scatter_tensor(part, x.cos(), group=dist.group.WORLD)
    equal, other = torch.empty_like(x), x.new_empty(2 * (rank + 1), 4)
    dist.all_to_all_single(equal, x.exp())
    rows = x.exp()[:3].contiguous()
    dist.all_to_all_single(other, rows, [rank + 1] * dist.get_world_size(), [1, 2])
    dist.all_reduce(x)
    dist.all_reduce(w[1])
    return reduced + 1, largest, sent * 2, gathered, part, equal - 1, other, x * w


def left_to_eager(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """What breaks the graph: docs/distributed.md says why."""
    waited = x + 1
    dist.all_reduce(waited, async_op=True).wait()
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    dist.barrier()
    stacked = x.sum(-1)
    dist.reduce(stacked, 0)
    dist.broadcast(stacked, 0)
    trained = functional.all_reduce(w, "sum", dist.group.WORLD)
    return trained * 2, waited, parts[0] + parts[1], stacked


COLLECTIVES: tuple[tuple[Any, bool, str | None], ...] = (
    (
        collectives_of_all_kinds,
        False,
        "all_reduce all_reduce all_gather all_gather reduce_scatter reduce_scatter broadcast",
    ),
    (trained_between, True, "all_reduce"),
    (
        exchanged,
        False,
        "all_to_all all_to_all all_reduce_coalesced all_gather_coalesced reduce_scatter_coalesced",
    ),
    (
        written,
        False,
        "all_reduce all_reduce broadcast all_gather reduce_scatter all_to_all all_to_all all_reduce"
        " all_reduce",
    ),
    (left_to_eager, True, None),
)
"""Programs that call collectives, whether they have gradients, and the operators that begin the
collectives, in order; None: not all stand in graphs.
"""


def collectives(program: Any, gradients: bool, order: str | None) -> list[str]:
    """What differs from eager in a program that calls collectives, and from their order."""
    differences = []
    compiled = fusewright.compile(program, fullgraph=order is not None)
    for step in range(3):
        generator = torch.Generator().manual_seed(dist.get_rank() + 2 * step)
        x, w = (torch.randn(4, 4, generator=generator).to(DEVICE) for _ in range(2))
        both = (x.clone(), w.clone()), (x, w)
        w.requires_grad_(gradients)
        both[0][1].requires_grad_(gradients)
        results = [*compiled(*both[0])]
        expected = [result + 0 for result in program(*both[1])]
        if gradients:
            results += torch.autograd.grad(results[0].sum(), both[0][1])
            expected += torch.autograd.grad(expected[0].sum(), w)
        try:
            torch.testing.assert_close([*results, *both[0]], [*expected, *both[1]])
        except AssertionError as error:
            differences.append(f"{program.__name__}: {error}")
    if order is not None:
        kinds = order.split()
        record = fusewright.compilations(compiled)[0].record
        calls = [name.split(".")[1] for name in record.extern_calls if "fusewright" in name]
        if [name for name in calls if name != "arrived"] != kinds:
            differences.append(f"the order of collectives: {calls}")
        if calls.index("arrived") < min(len(kinds), 5):
            differences.append(f"a collective is waited for too early: {calls}")
    return differences


def kept_code() -> list[str]:
    """What is wrong with how ranks share the machine code that one of them compiles: after it, or
    at the same time.
    """
    compiled: list[None] = []
    object_code = llvm_engine.MachineCodeCompiler.object_code

    def counted(compiler: Any, batch: Any) -> bytes:
        compiled.append(None)
        return object_code(compiler, batch)

    def count(program: Callable[[Tensor], Tensor]) -> int:
        """How many batches of kernels this rank compiles for a program."""
        compiled.clear()
        x = torch.ones(5, 7, requires_grad=True, device=DEVICE)
        fusewright.compile(program)(x).sum().backward()
        return len(compiled)

    with unittest.mock.patch.object(llvm_engine.MachineCodeCompiler, "object_code", counted):
        counts = []
        for rank in range(dist.get_world_size()):
            if rank == dist.get_rank():
                counts.append(count(lambda x: x.sin().cumsum(0) * 3))
            dist.barrier()
        counts.append(count(lambda x: x.cos().cumsum(1) * 5))
    by_rank: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, counts)
    (first, first_at_once), (second, second_at_once) = by_rank
    wrong = []
    if not first > 0 == second:
        wrong.append(f"batches compiled one after the other: {first}, {second}")
    if first_at_once + second_at_once != first:
        wrong.append(f"batches compiled at once: {first_at_once}, {second_at_once}")
    return wrong


COMPILED_NODES = ("CompiledFunctionBackward", "SegmentFunctionBackward")


def nodes_of(loss: Tensor) -> set[Any]:
    """The nodes in the history of a result."""
    nodes: set[Any] = set()
    stack = [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            stack += [before for before, _ in node.next_functions]
    return nodes


def main() -> None:
    """Run all scenarios; the first rank writes what it found."""
    warnings.filterwarnings("error", "fusewright: running")  # A graph that runs eagerly is a fault.
    if ON_GPUS:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group(BACKEND)
    checks: dict[str, Callable[[], list[str]]] = {
        name: functools.partial(run, name) for name in SCENARIOS
    }
    for row in COLLECTIVES:
        checks[row[0].__name__] = functools.partial(collectives, *row)
    if not ON_GPUS:
        checks["kept code"] = kept_code
    results: dict[str, list[str]] = {}
    for name, check in checks.items():
        start = time.perf_counter()
        try:
            results[name] = check()
        except Exception:
            results[name] = [traceback.format_exc()]
        if RANK == 0:
            state = "differs" if results[name] else "as in eager"
            print(f"{name}: {state}, {time.perf_counter() - start:.1f} s", flush=True)
    orders = {
        str(split): order_of_reductions(split) for split in (None, "backward", "graph", "none")
    }
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as file:
            json.dump({"differences": results, "orders": orders}, file)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # now and then gloo's threads abort a process that ends, in eager too


if __name__ == "__main__":
    main()
