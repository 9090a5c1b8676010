from __future__ import annotations

import pytest
import torch

from fusewright.fuzz import checking, eager_faults
from fusewright.fuzz.checking import check
from tests.fuzz.test_checking import found, program


@pytest.mark.parametrize("is_wrong", [True, False])
def test_gradients_of_tall_traces_tell_nothing_where_they_are_wrong(
    is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the flag stands for the version of torch. Without a gradient, and where there are as
    many columns as rows, a trace is compared.
    """
    monkeypatch.setattr(eager_faults, "FILLS_BEYOND_THE_DIAGONAL", is_wrong)
    trace = "return (x0{}.trace(),)"
    assert check(program(trace.format(""), "grad")).outcome == (
        "discarded" if is_wrong else "right"
    )
    for form, mode in (("", "plain"), ("[:3]", "grad"), (".t()", "grad")):
        source = program(trace.format(form), mode)
        assert check(source).outcome == "right"
        assert found(source, lambda f, x: (f(x * 2)[0],)) == {"wrong_value"}


def test_torch_is_wrong_before_that_version() -> None:
    x = torch.zeros(5, 2, requires_grad=True)
    x.trace().backward()
    assert x.grad is not None
    assert bool((x.grad != torch.eye(5, 2)).any()) == eager_faults.FILLS_BEYOND_THE_DIAGONAL


def test_a_break_that_is_documented_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    source = program("v = x0.as_strided((2,), (1,))\nx0.add_(1)\nreturn (v, x0.sum())")
    text = source.source.replace("torch.float32", 'torch.float32, "normal", "sliced"')
    assert check(source.with_source(text)).outcome == "right"
    monkeypatch.setattr(checking, "DOCUMENTED", ())
    assert check(source.with_source(text)).worst.kind == "fallback"
