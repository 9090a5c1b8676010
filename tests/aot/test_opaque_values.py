"""What calls of a forward graph keep for their gradients, whose size nobody can foretell: LSTM
layers, bags of embeddings and while loops beside eager, and how long what they keep lives.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import fusewright
from fusewright import control_flow
from fusewright.aot import embedding_bags
from fusewright.config import TARGETS
from fusewright.containers import tensors
from fusewright.errors import FusewrightError

LAYER = nn.LSTM(4, 4)
INDICES, OFFSETS = torch.tensor([0, 3, 1, 1, 5, 2]), torch.tensor([0, 2, 2])
Program = Callable[..., Tensor]


def layer(flow: Any, x: Tensor, w: Tensor) -> Tensor:
    """The memory of what the layer takes and gives is used again."""
    output, (hidden, _) = LAYER((x @ w).sin())
    return (output * 2 + hidden).cos().sin() * 3


def bags(flow: Any, x: Tensor, w: Tensor) -> Tensor:
    table = x.flatten(0, 1).cos()
    weights = (w.flatten()[:6] * 2).sin()
    found = functional.embedding_bag(
        INDICES, table, OFFSETS, mode="sum", per_sample_weights=weights
    )
    return (found * 2).cos() + functional.embedding_bag(INDICES, table, OFFSETS, mode="max").sin()


def loop(flow: Any, x: Tensor, w: Tensor) -> Tensor:
    """The loop keeps its first argument and its last result, whose memory others take over."""

    def body(count: Tensor, a: Tensor) -> Any:
        return count + 1, (a @ w).sin()

    first = (x * 2).cos()
    last = flow.while_loop(lambda count, a: count < 3, body, (torch.tensor(0), first))[1]
    return ((last * 3).cos() * 2 + 1).sin() * w[0]


def loops_in_a_loop(flow: Any, x: Tensor, w: Tensor) -> Tensor:
    def step(carry: Tensor, row: Tensor) -> Any:
        shrunk = flow.while_loop(
            lambda a: a.abs().sum() > 1, lambda a: (a * row.sigmoid(),), (carry + row,)
        )[0]
        return shrunk, LAYER(shrunk.unsqueeze(0))[0][0] @ w

    carry, stack = flow.scan(step, w[0].unsqueeze(0).expand(3, 4) * 1, x)
    return stack + carry


def checkpointed(flow: Any, x: Tensor, w: Tensor) -> Tensor:
    inner = lambda a, b: LAYER(a @ b)[0] + bags(flow, a, b).sum()  # noqa: E731
    result: Tensor = checkpoint(inner, x, w, use_reentrant=False)
    return result


PROGRAMS = (layer, bags, loop, loops_in_a_loop, checkpointed)


class OfTorch:
    """Loops that are captured."""

    while_loop = staticmethod(torch.while_loop)
    scan = staticmethod(torch._higher_order_ops.scan)


def leaves() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 3, 4, generator=generator, requires_grad=True)
    return x, torch.randn(4, 4, generator=generator, requires_grad=True)


def compiled(program: Program, **options: Any) -> Program:
    options = {"strict": True, "verify": True, **options}
    return fusewright.compile(program, fullgraph=True, options=options)


def gradients(result: Tensor, *inputs: Tensor, **how: Any) -> tuple[Tensor, ...]:
    wanted = (*inputs, *LAYER.parameters())
    return torch.autograd.grad(result.sum(), wanted, allow_unused=True, **how)


def check(program: Program, function: Program) -> None:
    """Twice the results and gradients of eager."""
    for _ in range(2):
        x, w = leaves()
        expected = program(control_flow, x, w)
        found = function(OfTorch, x, w)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            gradients(found, x, w), gradients(expected, x, w), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Program, target: str) -> None:
    check(program, compiled(program, target=target))


@pytest.mark.parametrize("backend", ["aot_eager", "loops_eager", "stage_check"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_by_other_backends(program: Program, backend: str) -> None:
    check(program, fusewright.compile(program, fullgraph=True, backend=backend))


@pytest.mark.parametrize(
    "options",
    [
        {"check_layouts": True, "check_nan": True, "debug_printer": "print"},
        {"memory_budget": 0.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_under_options(program: Program, options: Any, capsys: Any) -> None:
    check(program, compiled(program, **options))
    shown = capsys.readouterr().out
    assert ("an opaque value" in shown) is ("debug_printer" in options)


@pytest.mark.parametrize("program", [layer, bags, loop])
def test_backward_again(program: Program) -> None:
    x, w = leaves()
    result = compiled(program)(OfTorch, x, w)
    first = gradients(result, x, w, retain_graph=True)
    torch.testing.assert_close(gradients(result, x, w), first)
    with pytest.raises(RuntimeError, match="second time"):
        gradients(result, x, w)
    result = compiled(program)(OfTorch, x, w)
    of_x, *_ = gradients(result, x, w, create_graph=True)
    with pytest.raises(FusewrightError, match="second derivatives"):
        of_x.sum().backward()


@pytest.mark.parametrize("program", [layer, bags, loop, loops_in_a_loop])
def test_hooks_see_what_is_kept(program: Program) -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.clone()

    x, w = leaves()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        found = compiled(program)(OfTorch, x, w)
        assert len(packed) > 4
    torch.testing.assert_close(
        gradients(found, x, w),
        gradients(program(control_flow, x, w), x, w),
        rtol=1e-4,
        atol=1e-5,
    )


def kept_by(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Tensor]]:
    """What bags keep from now on."""
    references: list[weakref.ref[Tensor]] = []
    forward = embedding_bags._Call.forward

    def noting(self: Any, *arguments: Any) -> Any:
        *results, kept = forward(self, *arguments)
        references.extend(map(weakref.ref, tensors(kept)))
        return *results, kept

    monkeypatch.setattr(embedding_bags._Call, "forward", noting)
    return references


def test_what_is_kept_lives_as_long_as_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    references = kept_by(monkeypatch)
    function = compiled(bags)

    def alive() -> int:
        return sum(reference() is not None for reference in references)

    x, w = leaves()
    result = function(OfTorch, x, w)
    assert alive() == len(references) > 0
    gradients(result, x, w, retain_graph=True)
    assert alive() == len(references)
    gradients(result, x, w)
    assert alive() == 0  # though the node is there
    result = function(OfTorch, x, w)
    assert alive() > 0
    del result
    assert alive() == 0
    with torch.no_grad():
        function(OfTorch, x, w)
    assert alive() == 0


def test_what_a_call_raises() -> None:
    def program(table: Tensor, indices: Tensor) -> Tensor:
        functional.embedding_bag(indices, table)  # read by nobody
        return table * 2

    function = compiled(program)
    table = torch.randn(5, 3, requires_grad=True)
    torch.testing.assert_close(function(table, torch.tensor([[1, 4]])), table * 2)
    for run in (program, function):
        with pytest.raises(RuntimeError, match="5"):
            run(table, torch.tensor([[1, 5]]))


@pytest.mark.parametrize("program", [layer, bags, loop])
def test_threads(program: Program) -> None:
    function = compiled(program)
    inputs = [leaves() for _ in range(4)]
    with torch.no_grad():
        for number, (x, _) in enumerate(inputs):
            x.div_(number + 1)
    found: list[Any] = [None] * 4

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = gradients(function(OfTorch, *inputs[number]), *inputs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, given in zip(found, inputs, strict=True):
        torch.testing.assert_close(one, gradients(function(OfTorch, *given), *given))
