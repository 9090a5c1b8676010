"""Functions that read symbolic sizes as plain numbers, as torch's rms_norm does on a GPU, are given
plain ones: those sizes are constants of the program, others stay symbols.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import fusewright
from fusewright.errors import UnsupportedOperator
from fusewright.fake import mode
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import symbolic_int


@pytest.mark.parametrize("function", [torch.rms_norm, F.rms_norm])
def test_rms_norm(function: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode, "_is_on_gpu", lambda tensor: True)
    compiled = fusewright.compile(
        lambda x: function(x, x.shape[-1:]), dynamic=True, options={"strict": True}
    )
    for shape in ((5, 9), (3, 9), (7, 9), (7, 12), (2, 12)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        gradient = torch.randn(shape, dtype=torch.float64)
        (found,) = torch.autograd.grad(compiled(x), x, gradient)
        (expected,) = torch.autograd.grad(F.rms_norm(x, x.shape[-1:]), x, gradient)
        torch.testing.assert_close(found, expected)
    assert len(fusewright.compilations(compiled)) == 2


def test_who_takes_no_symbols_at_all_is_no_error_of_the_program() -> None:
    """C++ of some version of torch asks for what no symbol tells."""

    def refusing(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("Cannot call numel() on tensor with symbolic sizes/strides")

    facts = ShapeFacts()
    fakes = mode.FakeMode(facts)
    x = fakes.fake_distinct(torch.ones(4), [symbolic_int(facts, facts.size(4))], [1])
    with fakes, pytest.raises(UnsupportedOperator, match="refusing takes no symbolic sizes"):
        fakes.call(refusing, [x], {})
