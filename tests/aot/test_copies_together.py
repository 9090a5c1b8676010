"""New values of many inputs on a GPU are copied into them together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.aot import runtime
from fusewright.errors import is_partial_write


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each call copied, of tensors that are taken to be on a GPU."""
    counts: list[int] = []
    usual = torch_compat.cuda.foreach_copy_

    def copy(targets: list[Any], values: list[Any]) -> None:
        counts.append(len(targets))
        usual(targets, values)

    monkeypatch.setattr(runtime, "_is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(torch_compat.cuda, "foreach_copy_", copy)
    return counts


def test_those_of_one_type_are_copied_in_one_call(together: list[int]) -> None:
    floats = [torch.zeros(3) for _ in range(5)]
    integers = [torch.zeros((), dtype=torch.int64) for _ in range(4)]
    spread = torch.zeros(1).expand(4)
    halves = [torch.zeros(2, dtype=torch.float16) for _ in range(2)]
    inputs = dict(enumerate([*floats, *integers, spread, *halves]))
    versions = [tensor._version for tensor in inputs.values()]
    values = [(index, torch.ones_like(tensor)) for index, tensor in inputs.items()]
    runtime._write(inputs, values, frozenset())
    assert sorted(together) == [4, 5]
    assert all(bool((tensor == 1).all()) for tensor in inputs.values())
    assert all(t._version > v for t, v in zip(inputs.values(), versions, strict=True))


def test_what_autograd_is_to_know_is_copied_by_itself(together: list[int]) -> None:
    leaves = [torch.zeros(3) for _ in range(6)]
    sources = [torch.ones(3, requires_grad=True) for _ in range(6)]
    runtime._write(dict(enumerate(leaves)), enumerate(sources), frozenset({1, 3}))
    assert together == [4]
    assert [leaf.requires_grad for leaf in leaves] == [n in (1, 3) for n in range(6)]


def test_an_error_after_some_were_copied_is_marked(together: list[int]) -> None:
    inputs = {number: torch.zeros(3) for number in range(5)}
    inputs[5] = torch.zeros(3, dtype=torch.float64)
    values = [(number, torch.ones(3)) for number in range(5)]
    with pytest.raises(RuntimeError) as raised:
        runtime._write(inputs, [*values, (5, torch.ones(7))], frozenset())
    assert is_partial_write(raised.value)
