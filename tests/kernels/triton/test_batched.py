"""One kernel for several launches: its source, what it computes and leaves alone, and the same done
eagerly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import torch

import fusewright
from fusewright.context import CompileContext
from fusewright.ir.kernel import BatchedKernel, Kernel
from fusewright.ir.parse import parse_program
from fusewright.kernels import batching, define_kernels
from fusewright.kernels.batching import Batcher
from fusewright.kernels.triton import LIMITS
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.eager_kernels import eager_kernel
from fusewright.runtime.targets import source_of
from fusewright.schedule import schedule
from tests.golden import golden
from tests.kernels.triton.interpreted import NAME

STEP = """program step(x: f32[{n}] on cuda:0, g: f32[{n}] on cuda:0, rate: f64[])
  y: f32[{n}] on cuda:0 = pointwise [i0<{n}]
    t0 = load x[i0]
    t1 = load g[i0]
    t2 = load rate[0]
    t3 = cast t2: f32
    t4 = fma t1, t3, t0
    yield t4
  return y
"""

SIZES = (2, 1024, 1500, 2048, 3000)


def kernels_of(*texts: str) -> list[Kernel]:
    """The kernel of each program, of one group."""
    kernels = []
    for text in texts:
        planned = schedule(parse_program(text), CompileContext(), lambda device: LIMITS)
        (kernel,) = define_kernels(planned, CompileContext()).definitions
        kernels.append(kernel)
    return kernels


@golden("cases/batched.txt")
def test_source(text: str) -> str:
    head, _, program = text.partition("\n")
    kind, *sizes = head.split()
    kernels = kernels_of(*(program.replace("{n}", size) for size in sizes))
    with parameters(batching.MOST_PARAMETERS if kind == "sizes" else 0):
        return Batcher().batch(kernels, range(len(kernels[0].arguments))).kernel.source


def parameters(most: int) -> AbstractContextManager[Any]:
    """Kernels of several launches have so many parameters at most; 0: all have a table."""
    return patch.object(batching, "MOST_PARAMETERS", most)


def test_a_table_is_worth_three_launches() -> None:
    """A launch writes it. Parameters are worth two."""
    batcher = Batcher()
    assert [batcher.is_worth(launches, 3) for launches in (1, 2)] == [False, True]
    assert [batcher.is_worth(launches, 40) for launches in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize("places", [(0, 1, 2, 3), (0, 1, 2, 2)], ids=["apart", "in place"])
@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("most", [0, batching.MOST_PARAMETERS], ids=["table", "parameters"])
def test_each_launch_has_its_tensors(
    places: tuple[int, ...], eagerly: bool, most: int, tmp_path: Path
) -> None:
    """Elements behind a tensor's end are another's, and stay as they are."""
    kernels = kernels_of(*(STEP.replace("{n}", str(size)) for size in SIZES))
    batcher = Batcher()
    assert len({batcher.structure(kernel) for kernel in kernels}) == 1
    with parameters(most):
        batch = batcher.batch(kernels, places)
    assert batch.values == (0 if most else len(SIZES) * (1 + len(set(places))))
    generator = torch.Generator().manual_seed(0)
    given: list[torch.Tensor] = []
    wanted: list[torch.Tensor] = []
    for size in SIZES:
        x, g = (torch.randn(size + 3000, generator=generator) for _ in range(2))
        rate = torch.rand((), generator=generator, dtype=torch.float64)
        result = x.clone()
        result[:size] = x[:size] + g[:size] * rate.float()
        wanted.append(result)
        given += [g, rate, x] if places[3] == 2 else [g, rate, x, x.clone()]
    if batch.values:
        given.append(torch.zeros(batch.values, dtype=torch.int64))
    launch(batch, given, tmp_path, eagerly)
    width = len(set(places))
    for place, result in enumerate(wanted):
        torch.testing.assert_close(given[place * width + places[3]], result)


def launch(
    batch: BatchedKernel, tensors: Sequence[torch.Tensor], folder: Path, eagerly: bool
) -> None:
    source = source_of(batch.kernel)
    assert isinstance(source, TritonSource)
    assert (source.launches or tuple(map(int, batch.sizes))) == SIZES
    programs, sizes = int(batch.programs), list(map(int, batch.sizes))
    text = batch.kernel.source
    if eagerly:
        names = tuple(source.signature)
        eager_kernel(text, names, source.tensors, source.launches)(*tensors, *sizes, programs)
        return
    own: Sequence[Any] = [*tensors, *sizes]
    if batch.values:
        own = interpreter.with_table(source.first_values, tensors, [*source.signature.values()])
    else:  # Numbers of the CPU are given by value.
        kinds = source.signature.values()
        own = [
            value if kind.startswith("*") or isinstance(value, int) else value.item()
            for value, kind in zip(own, kinds, strict=True)
        ]
    function = interpreter.load_kernel(text.lstrip("\n"), folder)
    function[(programs,)](*own, *source.blocks.values())


@pytest.mark.parametrize(
    "text",
    [
        STEP.replace("{n}", "s0").replace("(x", "(s0 in [2, inf) hint 9, x"),
        STEP.replace("{n}", "64").replace("load g[i0]", "index i0: f32"),
        """program sums(x: f32[70, 64] on cuda:0)
  y: f32[70] on cuda:0 = reduce sum [i0<70] over [r0<64]
    t0 = load x[64*i0 + r0]
    yield t0
  return y
""",
    ],
    ids=["any size", "an index is fine", "rows"],
)
def test_what_can_be_batched(text: str, request: pytest.FixtureRequest) -> None:
    (kernel,) = kernels_of(text)
    assert (Batcher().structure(kernel) is not None) == ("fine" in request.node.name)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    ("kind", "launches"), [("SGD", 2), ("Adam", 3), ("AdamW", 3), ("RMSprop", 2)]
)
def test_steps_of_an_optimizer(kind: str, launches: int, foreach: bool) -> None:
    """All parameters but single numbers are moved by one launch; counters by another."""
    options: dict[str, Any] = {"lr": 0.1, "foreach": foreach, "weight_decay": 0.01}
    if kind in ("SGD", "RMSprop"):
        options["momentum"] = 0.9
    generator = torch.Generator().manual_seed(0)
    sizes = [(3,), (1500,), (40, 50), (1024,), (), (2, 2)]
    starts = [torch.randn(size, generator=generator) for size in sizes]
    ours, theirs = ([torch.nn.Parameter(s.clone()) for s in starts] for _ in range(2))
    optimizer, eager = (getattr(torch.optim, kind)(own, **options) for own in (ours, theirs))
    explained = None
    for _ in range(3):
        for parameter, other in zip(ours, theirs, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            other.grad = parameter.grad.clone()
        explained = fusewright.explain(optimizer.step, backend=NAME)()
        eager.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert explained is not None
    (graph,) = explained.graphs
    assert graph.launches == launches


def random_program(seed: int) -> tuple[Any, list[torch.Tensor]]:
    """A program that reads, writes and views some tensors of few sizes in any order, and those."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    count = draw.randint(2, 9)
    sizes = [draw.choice([(2,), (7,), (1030,), (33, 40), (1024,), (2048,)]) for _ in range(count)]
    kinds = ("scale", "sine", "add in place", "add a mean", "copy", "view")
    steps = [
        (draw.choice(kinds), draw.randrange(count), draw.randrange(count))
        for _ in range(draw.randint(count, 3 * count))
    ]

    def run(tensors: list[torch.Tensor], rate: torch.Tensor) -> list[torch.Tensor]:
        values, views = list(tensors), []
        for kind, own, other in steps:
            if kind == "scale":
                values[own] = values[own] * 0.5 + rate
            elif kind == "sine":
                values[own] = (values[own] * 0.1).sin()
            elif kind == "add in place":
                tensors[own].add_(values[own] * 0.25)
            elif kind == "add a mean":
                values[own] = values[own] + values[other].mean() * 0.1
            elif kind == "view":
                views.append(values[own].reshape(-1)[1:] * 2)
            elif tensors[own].shape == tensors[other].shape:
                tensors[own].copy_(values[other])
        return values + views

    return run, [torch.randn(size, generator=generator) for size in sizes]


BATCHING = (26, 37, 48, 53, 92, 111, 112, 131)
"""Seeds of programs with batches."""


@pytest.mark.parametrize("seed", BATCHING)
def test_a_launch_keeps_its_place_among_those_that_it_depends_on(seed: int) -> None:
    run, tensors = random_program(seed)
    rate = torch.tensor(0.3, dtype=torch.float64)
    others = [tensor.clone() for tensor in tensors]
    explained = fusewright.explain(run, backend=NAME, options={"strict": True, "verify": True})
    with torch.no_grad():
        explanation = explained(tensors, rate)
        again = fusewright.compile(run, backend=NAME, options={"strict": True})
        wanted = [run(others, rate) for _ in range(2)]
        found = again(tensors, rate)
    torch.testing.assert_close(found, wanted[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tensors, others, rtol=1e-5, atol=1e-6)
    (compilation,) = explanation.compilations
    assert compilation.record is not None
    assert any(launch.shares_launch for launch in compilation.record.launches)
