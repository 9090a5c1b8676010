"""The arena: buffers in it never share a byte while both are in use, and nothing that outlives a
call is in it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import fusewright
from fusewright import generation
from fusewright.config import TARGETS, Options
from fusewright.context import CompileContext
from fusewright.ir.dtype import DType
from fusewright.ir.index import contiguous_strides, integer
from fusewright.ir.lines import (
    Allocate,
    Arena,
    FreeIfNotReused,
    Line,
    Place,
    Return,
    Reuse,
    TakeInput,
)
from fusewright.ir.program import Buffer, BufferReference, Layout
from fusewright.ir.verify_lines import verify_lines
from fusewright.pipeline import compile_graph
from fusewright.runtime.compiled import CompiledGraph
from fusewright.wrapper import peak_bytes, plan_memory
from fusewright.wrapper.memory import ARENA_BYTES
from tools.replay_programs import LANGUAGES, models

# -- plans -----------------------------------------------------------------------------------------


def random_lines(seed: int) -> tuple[Line, ...]:
    """Buffers of a few sizes and types, of which some take over another's memory, some outlive the
    call, and the others end in any order.
    """
    choose = random.Random(seed)
    sizes = [choose.randint(1, 3000) for _ in range(choose.randint(1, 6))]
    alive: list[Buffer] = []
    lines: list[Line] = []
    for number in range(choose.randint(1, 40)):
        dtype, size = choose.choice((DType.F32, DType.U8, DType.F64)), choose.choice(sizes)
        extents = (integer(size),)
        layout = Layout(dtype=dtype, size=extents, stride=contiguous_strides(extents), device="cpu")
        buffer = Buffer(name=f"b{number}", layout=layout)
        heirs = [one for one in alive if one.layout == layout]
        if heirs and choose.random() < 0.3:
            source = choose.choice(heirs)
            alive.remove(source)
            lines.append(Reuse(buffer=buffer, source=source.name))
        else:
            lines.append(Allocate(buffer=buffer))
        alive.append(buffer)
        while alive and choose.random() < 0.45:
            dead = alive.pop(choose.randrange(len(alive)))
            lines.append(FreeIfNotReused(buffer=dead))
    return (*lines, Return(outputs=tuple(BufferReference(one.name) for one in alive)))


def with_released_inputs(lines: tuple[Line, ...], seed: int) -> tuple[Line, ...]:
    """`lines` behind inputs that go between them, as saved tensors do in a backward."""
    choose = random.Random(seed)
    result = list(lines)
    for number in range(choose.randint(1, 12)):
        extents = (integer(choose.randint(1, 9000)),)
        layout = Layout(dtype=DType.F32, size=extents, stride=(integer(1),), device="cpu")
        given = Buffer(name=f"x{number}", layout=layout)
        last = max(place for place, line in enumerate(result) if isinstance(line, Return))
        result.insert(choose.randint(0, last), FreeIfNotReused(buffer=given))
        result.insert(0, TakeInput(buffer=given, position=number))
    takes = [line for line in result if isinstance(line, TakeInput)]
    others = [line for line in result if not isinstance(line, TakeInput)]
    return (*reversed(takes), *others)


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_an_arena_leaves_room_for_what_is_released(start: int) -> None:
    """No more is held with it at any time, saved tensors among it, than without."""
    with_arena = 0
    for seed in range(start, start + 100):
        lines = with_released_inputs(random_lines(seed), seed)
        verify_lines(lines)
        released = frozenset(line.buffer.name for line in lines if isinstance(line, TakeInput))
        planned = plan_memory(lines, {}, released)
        verify_lines(planned)
        least = peak_bytes(lines, {}, released)
        assert peak_bytes(planned, {}, released) <= least + ARENA_BYTES
        with_arena += any(isinstance(line, Arena) for line in planned)
    assert with_arena > 20


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_buffers_in_use_share_no_byte(start: int) -> None:
    """As the verifier finds; and an arena saves allocations, and costs what is allowed."""
    with_arena = 0
    for seed in range(start, start + 100):
        lines = random_lines(seed)
        verify_lines(lines)
        planned = plan_memory(lines, {})
        verify_lines(planned)
        least = peak_bytes(lines, {})
        assert peak_bytes(planned, {}) <= least + ARENA_BYTES
        allocations = [line for line in planned if isinstance(line, Allocate | Arena)]
        assert len(allocations) <= sum(isinstance(line, Allocate) for line in lines)
        with_arena += any(isinstance(line, Arena) for line in planned)
    assert with_arena > 20


# -- programs --------------------------------------------------------------------------------------


def many_sizes(x: Tensor, w: Tensor) -> Any:
    """Kernels and library calls on buffers of many sizes and two types."""
    a = torch.softmax(x, -1)
    b = torch.softmax(a.sum(0), -1)
    c = torch.softmax(a + b, 0).sum(1)
    d = (a.double() @ w.double().t()).relu()
    e = torch.softmax(d[:, :3].contiguous(), 0)
    g = torch.sort(e)[0]
    h = torch.softmax(a, 0)
    return torch.softmax(g.sum(1) + c, 0), d.sum(), torch.cat([h, h.flip(0)]).t()


def kernels_alone(x: Tensor, w: Tensor) -> Tensor:
    """Buffers of many sizes that nothing but kernels use."""
    x = torch.softmax(torch.cat([x] * 5), 0)
    for count in (1, 7, 9, 5):
        x = torch.softmax(torch.softmax(x[count:], 1), 0)
    return x


def strided(x: Tensor, w: Tensor) -> Tensor:
    """Library calls that count from the beginning of the memory that their argument lies in."""
    rows = torch.softmax(torch.softmax(x[:3] * 2, 0), 1)
    other = torch.softmax(x[:4].double(), 0)
    base = torch.softmax(torch.softmax(x, 0), 1)
    whole = torch.as_strided_scatter(base, rows, (3, 8), (8, 1), 8)
    last = torch.as_strided_copy(torch.softmax(whole, 1), (2, 8), (8, 1), 24)
    return torch.softmax(torch.softmax(last, 0), 1) * other.sum()


def branches(x: Tensor, w: Tensor) -> Any:
    """Each branch has an arena of its own."""

    def inner(a: Tensor) -> Tensor:
        return many_sizes(a, w)[0] + 1

    return torch.cond(x.sum() > 0, inner, lambda a: many_sizes(-a, w)[0], (x,))


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 8, generator=generator), torch.randn(4, 8, generator=generator)


def places(compiled: CompiledGraph) -> int:
    return sum(isinstance(line, Place) for line in compiled.record.lines)


@pytest.mark.parametrize("checks", ["", "end", "begin", "garbage"])
@pytest.mark.parametrize("target", TARGETS)
def test_programs_compute_in_an_arena(
    target: str, checks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under checks of memory each buffer has a mapping of its own."""
    if checks == "garbage":
        monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    elif checks:
        monkeypatch.setenv("FUSEWRIGHT_GUARD_PAGES", checks)
    context = CompileContext(options=Options(verify=True, target=target))
    with torch.no_grad():
        compiled = compile_graph(fx.symbolic_trace(many_sizes), list(inputs()), context)
        for _ in range(3):
            torch.testing.assert_close(compiled(*inputs()), many_sizes(*inputs()))
    assert places(compiled) >= 3


@pytest.mark.parametrize("program", [kernels_alone, strided])
@pytest.mark.parametrize("target", TARGETS)
def test_library_calls_have_memory_of_their_own(target: str, program: Any) -> None:
    options = {"target": target, "verify": True, "strict": True}
    compiled = fusewright.compile(program, fullgraph=True, options=options)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(*inputs()), program(*inputs()))


@pytest.mark.parametrize("target", TARGETS)
def test_results_hold_no_arena(target: str) -> None:
    x, w = inputs()
    function = fusewright.compile(many_sizes, options={"target": target, "verify": True})
    with torch.no_grad():
        results = function(x, w)
        again = [result.clone() for result in results]
        function(x + 1, w)
    for result, expected in zip(results, again, strict=True):
        assert result.untyped_storage().nbytes() <= result.nbytes
        assert torch.equal(result, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_have_arenas(target: str) -> None:
    x, w = inputs()
    function = fusewright.compile(branches, options={"target": target, "verify": True})
    with torch.no_grad():
        for sign in (1, -1):
            torch.testing.assert_close(function(x * sign, w), branches(x * sign, w))


def loss(x: Tensor, w: Tensor) -> Tensor:
    a = torch.softmax(x @ w.t(), -1)
    b = torch.softmax(a.t() @ x, -1)
    return (torch.softmax(b, 0).sum(1) * torch.softmax(a, 0)).square().sum()


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_backward_finds_holds_no_arena(target: str) -> None:
    x, w = (tensor.double().requires_grad_() for tensor in inputs())
    function = fusewright.compile(loss, options={"target": target, "verify": True})
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = function(x, w)
        gradients = torch.autograd.grad(result, (x, w))
        torch.testing.assert_close(gradients, torch.autograd.grad(loss(x, w), (x, w)))
    (forward,) = (one.compiled for one in fusewright.compilations(function))
    assert forward is not None and saved
    assert all(one.untyped_storage().nbytes() <= one.nbytes for one in saved)


def test_an_arena_is_smaller_than_the_sum_of_its_buffers() -> None:
    context = CompileContext(options=Options(verify=True))
    with torch.no_grad():
        compiled = compile_graph(fx.symbolic_trace(kernels_alone), list(inputs()), context)
    lines = compiled.record.lines
    (arena,) = (line.buffer for line in lines if isinstance(line, Arena))
    placed = [line.buffer.layout for line in lines if isinstance(line, Place)]
    total = sum(layout.span.constant * layout.dtype.bytes for layout in placed)
    assert arena.layout.span.constant < total


@pytest.mark.thorough
def test_models_need_little_more_than_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each model of the benchmark, inference and both halves of training: the planned peak
    beside the most that buffers yet to be used take, less than which no plan needs, each with what
    others allocated and is released.
    """
    shares: dict[str, list[float]] = {}

    def plan(
        lines: tuple[Line, ...], hints: Mapping[str, int | float], released: frozenset[str]
    ) -> tuple[Line, ...]:
        planned = plan_memory(lines, hints, released)
        shares[name].append(
            peak_bytes(planned, hints, released) / peak_bytes(lines, hints, released)
        )
        return planned

    monkeypatch.setattr(generation, "plan_memory", plan)
    for name, generate in models().items():
        shares[name] = []
        generate(LANGUAGES["cpu"])
    assert len(shares) == 16 and all(shares.values())
    assert max(max(each) for each in shares.values()) <= 1.1, shares
