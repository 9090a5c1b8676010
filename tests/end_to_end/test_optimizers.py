"""Optimizer steps through the whole compiler: few kernels, written in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from fusewright.ir.lines import Reuse

STEPS = 4

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("RMSprop", {"centered": True}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Adamax", {}),
    ("Rprop", {}),
    ("ASGD", {"t0": 2.0}),
]


def parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(64, 32), (64,), (16, 64), (16,), ()]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_steps(name: str, options: dict[str, Any], foreach: bool) -> None:
    ours, theirs = parameters(), parameters()
    make = getattr(torch.optim, name)
    optimizer = make(ours, lr=0.01, foreach=foreach, **options)
    expected = make(theirs, lr=0.01, foreach=foreach, **options)
    step = fusewright.compile(optimizer.step, fullgraph=True, options={"strict": True})
    for _ in range(STEPS):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        versions = [one._version for one in ours]
        memory = [one.data_ptr() for one in ours]
        step()
        expected.step()
        assert all(one._version > old for one, old in zip(ours, versions, strict=True))
        assert [one.data_ptr() for one in ours] == memory
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(optimizer.state_dict()["state"], expected.state_dict()["state"])
    record = fusewright.compilations(step)[-1].record
    assert record is not None
    assert not record.extern_calls
    assert len(record.launches) <= 2 * len(ours)
    written = {line.buffer.name for line in record.lines if isinstance(line, Reuse)}
    buffers = record.program.buffers()
    large = {result for result, _ in record.program.mutations if buffers[result].layout.size}
    assert large <= written


def test_what_backward_kept_is_known_to_have_changed() -> None:
    weight = torch.randn(4, requires_grad=True)

    def double(x: torch.Tensor) -> None:
        with torch.no_grad():
            x.mul_(2)

    loss = (weight * weight).sum()
    fusewright.compile(double, fullgraph=True, options={"strict": True})(weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_call_that_raises_writes_nothing_twice() -> None:
    def write(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[index]

    compiled = fusewright.compile(write, fullgraph=True, options={"strict": True})
    x = torch.zeros(4)
    assert compiled(x, torch.tensor([3])) == 1
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([4]))
    assert x.tolist() in ([1.0] * 4, [2.0] * 4)  # as before the call, or as eager leaves it
