"""The backend that compares every stage with eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from fusewright.backends import stage_check
from fusewright.errors import StageDiffers

X = torch.arange(12.0).reshape(3, 4)


def program(x: Any) -> Any:
    x = x.t()
    x.mul_(2)
    return torch.softmax(x, 0), torch.rand(3), x[0]


def test_a_program_whose_stages_agree() -> None:
    x, y = X.clone(), X.clone()
    torch.manual_seed(3)
    found = fusewright.compile(program, backend="stage_check", fullgraph=True)(x)
    torch.manual_seed(3)
    for one, other in zip(found, program(y), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(x, y), "changed once"
    assert found[2].data_ptr() == x.data_ptr()


def test_gradients_are_eagers() -> None:
    weight = torch.ones(4, requires_grad=True)
    fusewright.compile(lambda x: (x * weight).sum(), backend="stage_check")(X).backward()
    assert torch.equal(weight.grad, X.sum(0))


def test_the_first_stage_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Any, inputs: Any) -> Any:
        return lambda *inputs: [result + 1 for result in graph(*inputs)]

    monkeypatch.setitem(stage_check.STAGES, "lowering to loops", wrong)
    compiled = fusewright.compile(lambda x: torch.relu(x), backend="stage_check")
    with pytest.raises(StageDiffers, match="result 0 differs from eager first") as raised:
        compiled(X)
    assert raised.value.stage == "lowering to loops"
    assert "Greatest absolute difference: 1.0" in str(raised.value)


@pytest.mark.dynamic(None)
def test_a_changed_input_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(graph: Any, inputs: Any) -> Any:
        return lambda *inputs: graph(*(value.clone() for value in inputs))

    monkeypatch.setitem(stage_check.STAGES, "tracing", forgets)
    compiled = fusewright.compile(lambda x: x.add_(1), backend="stage_check")
    with pytest.raises(StageDiffers, match=r"input 0, after the call, differs .* tracing"):
        compiled(X.clone())
