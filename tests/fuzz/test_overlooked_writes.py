from __future__ import annotations

import pytest
import torch

from fusewright.fuzz.checking import check
from fusewright.fuzz.overlooked_writes import OverlookedWrites
from tests.fuzz.test_checking import program


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_write_behind_kron_is_met(written: bool, grad: bool) -> None:
    """It changes eager's gradient, where there is one."""
    leaf = torch.randn(3, requires_grad=grad)
    with OverlookedWrites() as writes:
        x = leaf * 1
        product = torch.kron(x, torch.ones(2)) + torch.kron(input=x, other=x).sum()
        (x if written else product).mul_(2)
    assert writes.met == (written and grad)


def test_torch_still_overlooks_it() -> None:
    x = torch.full((1,), 3.0, requires_grad=True)
    copy = x * 1
    product = torch.kron(copy, copy)
    copy.add_(1)
    product.backward()
    assert x.grad is not None and x.grad.item() == 8, "no longer 2 * (3 + 1): mend OVERLOOKING"


def test_such_programs_tell_nothing() -> None:
    for write, outcome in (("x.add_(1)", "discarded"), ("x = x + 1", "right")):
        body = f"x = x0 * 1\nv = torch.kron(x, x)\n{write}\nreturn (v, x)"
        assert check(program(body, "grad")).outcome == outcome
