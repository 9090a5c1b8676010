"""The memory pass: reuse by equal span, never of memory that is not the wrapper's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.dtype import DType
from fusewright.ir.index import contiguous_strides, integer
from fusewright.ir.lines import Allocate, CallExtern, Free, FreeIfNotReused, Reuse, TakeInput
from fusewright.ir.program import Buffer, Layout
from fusewright.ir.sizes import size_symbol
from fusewright.pipeline import compile_graph
from fusewright.wrapper import pack_native, peak_bytes, plan_memory


def buffer(name: str, *size: object, dtype: DType = DType.F32, device: str = "cpu") -> Buffer:
    sizes = tuple(
        s.index if hasattr(s, "index") and not isinstance(s, int) else integer(s) for s in size
    )
    return Buffer(
        name=name,
        layout=Layout(dtype=dtype, size=sizes, stride=contiguous_strides(sizes), device=device),
    )


def test_dead_memory_is_reused_for_the_same_span() -> None:
    a, b = buffer("a", 4, 8), buffer("b", 32)
    lines = plan_memory((Allocate(buffer=a), FreeIfNotReused(buffer=a), Allocate(buffer=b)), {})
    assert lines == (Allocate(buffer=a), Reuse(buffer=b, source="a"))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_memory_of_a_gpu_does_not_wait_while_other_memory_is_asked_for(device: str) -> None:
    """Torch keeps what is freed there, for whoever asks next."""
    a, b, c = (
        buffer("a", 8, device=device),
        buffer("b", 9, device=device),
        buffer("c", 8, device=device),
    )
    call = CallExtern(
        operator="aten.relu.default", arguments=(), keywords=(), results=("r",), is_tuple=False
    )
    for asked in (Allocate(buffer=b), call):
        before = (Allocate(buffer=a), FreeIfNotReused(buffer=a), asked, Allocate(buffer=c))
        freed = (Allocate(buffer=a), Free(name="a"), asked, Allocate(buffer=c))
        kept = (Allocate(buffer=a), asked, Reuse(buffer=c, source="a"))
        assert plan_memory(before, {}) == (kept if device == "cpu" else freed)
    at_once = (Allocate(buffer=a), FreeIfNotReused(buffer=a), Allocate(buffer=c))
    assert plan_memory(at_once, {}) == (Allocate(buffer=a), Reuse(buffer=c, source="a"))


def test_another_type_or_span_is_no_reuse() -> None:
    a = buffer("a", 8)
    for other in (buffer("b", 9), buffer("b", 8, dtype=DType.I32)):
        lines = plan_memory(
            (Allocate(buffer=a), FreeIfNotReused(buffer=a), Allocate(buffer=other)), {}
        )
        assert lines == (Allocate(buffer=a), Free(name="a"), Allocate(buffer=other))


def test_memory_of_inputs_is_only_dropped() -> None:
    a, b = buffer("a", 8), buffer("b", 8)
    lines = plan_memory((FreeIfNotReused(buffer=a), Allocate(buffer=b)), {})
    assert lines == (Free(name="a"), Allocate(buffer=b))


def test_reused_memory_is_reused_again() -> None:
    a, b, c = (buffer(name, 8) for name in "abc")
    lines = plan_memory(
        (
            Allocate(buffer=a),
            FreeIfNotReused(buffer=a),
            Allocate(buffer=b),
            FreeIfNotReused(buffer=b),
            Allocate(buffer=c),
        ),
        {},
    )
    assert lines == (Allocate(buffer=a), Reuse(buffer=b, source="a"), Reuse(buffer=c, source="b"))
    assert peak_bytes(lines, {}) == 32


def test_symbolic_spans_are_compared_as_expressions() -> None:
    n = size_symbol("s0")
    a, b, c = buffer("a", n, 8), buffer("b", 8, n), buffer("c", n, 4)
    lines = plan_memory(
        (
            Allocate(buffer=a),
            FreeIfNotReused(buffer=a),
            Allocate(buffer=c),
            Allocate(buffer=b),
        ),
        {"s0": 3},
    )
    assert lines == (Allocate(buffer=a), Allocate(buffer=c), Reuse(buffer=b, source="a"))
    assert peak_bytes(lines, {"s0": 3}) == 3 * 8 * 4 + 3 * 4 * 4


def test_dead_memory_waits_only_where_that_is_room_enough() -> None:
    """While `large` lives, holding what `a` had would take more than the whole ever does."""
    n = size_symbol("s0")
    a, large, b = buffer("a", n, 8), buffer("large", n, 100), buffer("b", n, 8)
    others = (Allocate(buffer=large), FreeIfNotReused(buffer=large))
    lines = (Allocate(buffer=a), FreeIfNotReused(buffer=a), *others, Allocate(buffer=b))
    assert peak_bytes(lines, {"s0": 1}) == 400
    planned = plan_memory(lines, {"s0": 1})
    freed = (Free(name="a"), Allocate(buffer=large), Free(name="large"))
    assert planned == (Allocate(buffer=a), *freed, Allocate(buffer=b))
    assert peak_bytes(planned, {"s0": 1}) == 400


def test_memory_that_waits_is_counted_once_each() -> None:
    """There is room for one of two buffers to wait, not for both."""
    n = size_symbol("s0")
    a, b, large = buffer("a", n, 8), buffer("b", n, 9), buffer("large", n, 100)
    c, d, first = buffer("c", n, 8), buffer("d", n, 9), buffer("first", n, 110)
    dead = tuple(FreeIfNotReused(buffer=one) for one in (a, b))
    lines = (
        *(Allocate(buffer=first), FreeIfNotReused(buffer=first)),
        *(Allocate(buffer=a), Allocate(buffer=b), *dead),
        *(Allocate(buffer=large), FreeIfNotReused(buffer=large)),
        *(Allocate(buffer=c), Allocate(buffer=d)),
    )
    planned = plan_memory(lines, {"s0": 1})
    assert Reuse(buffer=c, source="a") in planned and Allocate(buffer=d) in planned
    assert peak_bytes(planned, {"s0": 1}) <= peak_bytes(lines, {"s0": 1}) == 440


def residual(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(x, w, padding=1) + x


def kept(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.conv2d(x, w, padding=1)
    return y, y + x


def pooled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Nothing is known of whose memory it gives."""
    return torch.max_pool2d(x, 3, 1, 1) + w[0, 0, 0, 0]


@pytest.mark.parametrize("target", ["native", "python"])
@pytest.mark.parametrize(("function", "reused"), [(residual, 1), (kept, 0), (pooled, 0)])
def test_what_a_library_call_makes_is_overwritten_where_nobody_else_has_it(
    function: Callable[..., Any], reused: int, target: str
) -> None:
    x, w = torch.randn(2, 8, 5, 5), torch.randn(8, 8, 3, 3)
    context = CompileContext(options=Options(verify=True, target=target))
    with torch.no_grad():
        compiled = compile_graph(fx.symbolic_trace(function), [x, w], context)
        wanted = function(x, w)
        results = compiled(x, w)
    lines = compiled.record.lines
    assert sum(isinstance(line, Reuse) for line in lines) == reused
    assert sum(isinstance(line, Allocate) for line in lines) == 1 - reused
    torch.testing.assert_close(results, wanted)
    assert compiled.record.peak_bytes == 2 * 8 * 5 * 5 * 4
    plan = pack_native(lines, [1] * len(lines))
    assert "runtime.reinterpret" not in plan.constants  # A kernel writes to the memory itself.


def test_memory_of_a_librarys_result_is_planned_once_it_is_taken_over() -> None:
    """It can be a third buffer then; an input that is taken over is the caller's."""
    a, b, image = buffer("a", 8), buffer("b", 8), buffer("image", 16)
    given = buffer("given", 16)
    call = CallExtern(
        operator="aten.convolution.default",
        arguments=(),
        keywords=(),
        results=("made",),
        is_tuple=False,
    )
    lines = (
        TakeInput(buffer=given, position=0),
        call,
        *(Reuse(buffer=a, source="made"), FreeIfNotReused(buffer=a)),
        *(Allocate(buffer=b), FreeIfNotReused(buffer=b)),
        Reuse(buffer=image, source="given"),
    )
    planned = plan_memory(lines, {})
    assert Reuse(buffer=b, source="a") in planned
    assert peak_bytes(planned, {}) == 8 * 4
