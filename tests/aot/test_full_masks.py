"""Masks of attention that mask nothing are left out, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional

import fusewright
from fusewright.aot import AtenGraph, trace_inference
from fusewright.aot.full_masks import bounds, without_full_mask
from fusewright.context import CompileContext
from fusewright.fake import FakeMode

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

Mask = Callable[[int, int], Tensor]
"""Of the number of texts and of their length."""


def rows(length: int) -> Tensor:
    return torch.arange(length)[None, None, :, None]


def columns(length: int) -> Tensor:
    return torch.arange(length)[None, None, None, :]


def written_to(texts: int, length: int) -> Tensor:
    mask = torch.ones(length, length, dtype=torch.bool)
    mask[:, 1:].logical_not_()
    return mask.expand(texts, 1, length, length)


FULL: dict[str, Mask] = {
    "as models make it": lambda texts, length: (
        torch.arange(length).new_ones((), dtype=torch.bool) & (rows(length) >= 0)
    ).expand(texts, -1, length, length),
    "ones": lambda texts, length: torch.ones(length, length, dtype=torch.bool),
    "a window wider than the text": lambda texts, length: (
        (rows(length) - columns(length) < 64) & (columns(length) - rows(length) <= 64)
    ),
    "either of two": lambda texts, length: (
        (rows(length) > columns(length)) | (columns(length) + 1 > 0)
    ),
    "of numbers": lambda texts, length: (rows(length) + columns(length) + 1).bool(),
}
PARTIAL: dict[str, Mask] = {
    "causal": lambda texts, length: rows(length) >= columns(length),
    "a window": lambda texts, length: rows(length) - columns(length) < 4,
    "the last is left out": lambda texts, length: columns(length) + 2 <= length,
    "written to": written_to,
    "of a large sum": lambda texts, length: (
        (torch.full((length, length), 2**62) + torch.full((length, length), 2**62)) > 0
    ),
    "true counts once": lambda texts, length: torch.full((length, length), True) + True > 1,
    "one for all texts": lambda texts, length: torch.ones(1, texts, 1, 1, dtype=torch.bool) & (
        rows(length) > 0
    ),
}  # fmt: skip


def attention(mask: Mask) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        texts, _, length, _ = x.shape
        result: Tensor = functional.scaled_dot_product_attention(x, x, x, mask(texts, length))
        return result

    return call


def compiled(function: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[Any, AtenGraph]:
    """The result of a compiled call without gradients, and the graph that it amounts to."""
    graphs: list[AtenGraph] = []

    def backend(module: fx.GraphModule, examples: list[Any], **_: Any) -> Any:
        graphs.append(trace_inference(module, examples, CompileContext()))
        return module

    with torch.no_grad():
        result = fusewright.compile(function, backend=backend, fullgraph=True, **options)(*inputs)
    return result, graphs[0]


def has_mask(graph: AtenGraph) -> bool:
    (call,) = graph.graph.find_nodes(op="call_function", target=ATTENTION)
    return call.kwargs.get("attn_mask") is not None


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FULL)
def test_a_mask_that_masks_nothing_is_left_out(name: str, dynamic: bool) -> None:
    x = torch.randn(2, 3, 16, 4)
    mask = FULL[name]
    assert mask(2, 16).all()
    _, graph = compiled(attention(mask), x, dynamic=dynamic)
    # How far a window reaches says nothing of any length.
    assert has_mask(graph) == (dynamic and "window" in name)
    with torch.no_grad():
        found = fusewright.compile(attention(mask), dynamic=dynamic)(x)
        torch.testing.assert_close(found, attention(mask)(x))


@pytest.mark.parametrize("name", PARTIAL)
def test_others_stay(name: str) -> None:
    x = torch.randn(3, 3, 16, 4)
    mask = PARTIAL[name]
    assert not mask(3, 16).all()
    found, graph = compiled(attention(mask), x)
    assert has_mask(graph)
    torch.testing.assert_close(found, attention(mask)(x))


def test_a_mask_that_makes_more_of_the_result_stays() -> None:
    mask = torch.ones(5, 1, 16, 16, dtype=torch.bool)
    x = FakeMode().fake(torch.empty(1, 3, 16, 4))
    kwargs = {"attn_mask": x.fake_mode.fake(mask)}
    full = fx.Graph().call_function(torch.ops.aten.ones.default, ([5, 1, 16, 16],))
    full.meta["val"] = kwargs["attn_mask"]
    assert bounds(full) == (1, 1)
    given = (x, x, x), kwargs
    assert without_full_mask(*given, lambda tensor: full, draws_freely=True) == given


@pytest.mark.parametrize("size", [(15, 16), (2, 3, 1, 16, 16), (16, 17)])
def test_one_that_does_not_fit_is_refused_as_in_eager(size: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 16, 4)
    call = attention(lambda texts, length: torch.ones(size, dtype=torch.bool))
    with torch.no_grad():
        try:
            wanted = call(x)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                fusewright.compile(call)(x)
        else:
            torch.testing.assert_close(fusewright.compile(call)(x), wanted)


def test_gradients_of_attention_without_its_mask() -> None:
    x, y = (torch.randn(2, 3, 16, 4).requires_grad_() for _ in range(2))
    y.data.copy_(x.data)
    call = attention(FULL["as models make it"])
    fusewright.compile(call)(x).sin().sum().backward()
    call(y).sin().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


LEAVES: tuple[tuple[Callable[..., Any], Callable[[random.Random], tuple[Any, ...]]], ...] = (
    (torch.arange, lambda choose: ((start := choose.randint(-9, 9)), start + 4)),
    (torch.full, lambda choose: ((4,), choose.randint(-3, 3))),
    (torch.full, lambda choose: ((1,), choose.random() < 0.5)),
    (torch.ones, lambda choose: (4,)),
)
OPERATORS: tuple[Callable[..., Any], ...] = (
    *(torch.ge, torch.gt, torch.le, torch.lt, torch.add, torch.sub),
    *(torch.bitwise_and, torch.bitwise_or, torch.logical_and),
)


def random_integers(graph: fx.Graph, choose: random.Random, depth: int) -> fx.Node:
    """A node of integers, or of conditions, that no input decides."""
    if depth == 0:
        function, arguments = choose.choice(LEAVES)
        leaf = graph.call_function(function, arguments(choose))
        is_float = function is torch.ones
        return graph.call_method("to", (leaf, torch.int64)) if is_float else leaf
    left, right = (random_integers(graph, choose, depth - 1) for _ in range(2))
    if choose.random() < 0.2:
        return graph.call_method("bool", (left,))
    number = choose.randint(-4, 4)
    return graph.call_function(
        choose.choice(OPERATORS), (left, number if choose.random() < 0.2 else right)
    )


def test_bounds_hold_for_random_programs() -> None:
    known = 0
    for seed in range(60):
        graph = fx.Graph()
        graph.output(random_integers(graph, random.Random(seed), 1 + seed % 3))
        module = fx.GraphModule(torch.nn.Module(), graph)
        try:
            values = module()
        except (RuntimeError, TypeError):  # of conditions, there are no differences
            continue
        (output,) = trace_inference(module, [], CompileContext()).outputs
        least, most = bounds(output)
        assert least is None or least <= int(values.min()), seed
        assert most is None or most >= int(values.max()), seed
        known += None not in (least, most) and (least, most) != (0, 1)
    assert known > 20
