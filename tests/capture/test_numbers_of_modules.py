"""A module's buffer of one integer is most often a setting: what a program decides by it is known
while tracing, and guarded. One that is seen to vary is a tensor like others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import fusewright
from tests.capture.reporting import graphs

X = torch.arange(12.0).reshape(3, 4)


class Settings(nn.Module):
    """Computes with a number that it keeps as a tensor."""

    def __init__(self, compute: Callable[[Any, Any], Any], number: Any = 2) -> None:
        super().__init__()
        self.compute = compute
        self.register_buffer("number", torch.tensor(number))

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)


def decides(self: Any, x: Any) -> Any:
    return x + 1 if self.number > 1 else x - 1


def takes_the_larger(self: Any, x: Any) -> Any:
    return x[:, : max(self.number, self.number // 2 + 2)] * self.number


def pads(self: Any, x: Any) -> Any:
    return functional.pad(x, (self.number - 1, torch.ceil(self.number / 3).to(torch.int64)))


def counts(self: Any, x: Any) -> Any:
    return [x * step for step in range(self.number.item())]


def chooses(self: Any, x: Any) -> Any:
    return (x, x + 1, x + 2, x + 3)[self.number]


def writes_first(self: Any, x: Any) -> Any:
    self.number.mul_(2).sub_(2)
    return x * self.number.item()


def guards_of_numbers(compiled: Any) -> int:
    checks = [each.guards.checks for each in fusewright.compilations(compiled)]
    return sum(check.expression.endswith("number.item()") for each in checks for check in each)


def run(module: nn.Module, backend: str = "eager") -> Any:
    return fusewright.compile(module, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "compute", [decides, takes_the_larger, pads, counts, chooses, writes_first]
)
def test_one_graph(compute: Callable[[Any, Any], Any], backend: str) -> None:
    module, expected = Settings(compute), Settings(compute)
    compiled = fusewright.compile(module, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), expected(X), rtol=0, atol=0)
    assert torch.equal(module.number, expected.number)
    assert len(graphs(compiled)) == 1


def test_a_number_that_changes_is_compiled_for_once_and_then_for_all() -> None:
    module = Settings(counts)
    compiled = run(module)
    for number in (2, 2, 3, 1, 4, 2, 5):
        module.number.fill_(number)
        torch.testing.assert_close(compiled(X), counts(module, X))
    assert guards_of_numbers(compiled) == 1


def test_a_counter_is_a_tensor() -> None:
    def steps(self: Any, x: Any) -> Any:
        self.number += 1
        return x * 2 if self.number > 4 else x

    module, expected = Settings(steps), Settings(steps)
    compiled = run(module)
    for _ in range(6):
        assert torch.equal(compiled(X), expected(X))
    assert torch.equal(module.number, expected.number)
    assert guards_of_numbers(compiled) == 1


def test_a_counter_that_nobody_reads_is_not_guarded() -> None:
    norm = nn.BatchNorm1d(4)
    compiled = run(norm)
    for _ in range(4):
        compiled(X)
    assert norm.num_batches_tracked == 4 and len(graphs(compiled)) == 1


def test_a_number_written_through_another_tensor() -> None:
    def writes(self: Any, x: Any) -> Any:
        self.other.add_(1)
        return x * self.number.item()

    def shared() -> Settings:
        module = Settings(writes)
        module.register_buffer("other", torch.tensor([7, 2]))
        module.number = module.other[1]
        return module

    module, expected = shared(), shared()
    compiled = run(module)
    for _ in range(3):
        assert torch.equal(compiled(X), expected(X))


@pytest.mark.parametrize("number", [2.5, [1, 2]])
def test_other_buffers_are_tensors(number: Any) -> None:
    def reads(self: Any, x: Any) -> Any:
        return x * self.number.sum().item()

    found = fusewright.explain(Settings(reads, number), backend="eager")(X)
    assert {each.reason for each in found.breaks} == {"tensor-value"}
