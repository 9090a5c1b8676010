"""What surrounds launches is no more than it has to be: tensors are copied only where what was
there is still read, and inputs are written to where they lie.
"""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

from typing import Any

import pytest
import torch

import fusewright
from fusewright.ir.lines import CallUserTriton, DefineKernel
from tests.user_kernels import programs
from tests.user_kernels.programs import PROGRAMS, add, blocks, scale

assert interpreter

STRICT = {"strict": True, "verify": True}


@pytest.mark.parametrize(
    ("name", "copies", "launches"),
    [
        ("into_new_memory", 0, 2),
        ("in_place", 0, 2),
        ("of_an_input", 0, 1),
        ("of_a_product", 0, 1),
        ("read_before_and_after", 0, 2),
        ("one_tensor_three_times", 0, 1),
        ("autotuned", 0, 1),
        ("twice_into_one_sum", 0, 1),
        ("of_strides", 0, 1),
        ("one_after_another", 0, 1),
    ],
)
def test_copies(name: str, copies: int, launches: int) -> None:
    compiled = fusewright.compile(PROGRAMS[name], fullgraph=True, options=STRICT)
    with torch.no_grad():
        compiled(torch.randn(40))
    record = fusewright.compilations(compiled)[-1].record
    kernels = [call.kernel for call in record.launches]
    assert sum("copy" in kernel for kernel in kernels) == copies
    assert len(kernels) == launches
    defined = [line for line in record.lines if isinstance(line, DefineKernel)]
    assert len(defined) == len({*kernels})


def launches_of(program: Any, *inputs: Any) -> list[CallUserTriton]:
    compiled = fusewright.compile(program, fullgraph=True, options=STRICT)
    with torch.no_grad():
        compiled(*inputs)
    record = fusewright.compilations(compiled)[-1].record
    return [line for line in record.lines if isinstance(line, CallUserTriton)]


def test_what_explain_says() -> None:
    with torch.no_grad():
        report = fusewright.explain(programs.one_after_another)(torch.randn(40))
    assert report.graphs[0].user_kernels == ("add", "add_1", "add_2")
    assert "0 library calls, the program's own add, add_1, add_2" in str(report)


def test_a_launch_behind_writes_says_so() -> None:
    def before(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        scale[blocks(y.numel())](y, y.numel(), 2.0, BLOCK=16)
        scale[blocks(x.numel())](x, x.numel(), 2.0, BLOCK=16)
        return y

    first, second = launches_of(before, torch.randn(40))
    flags = {line.is_behind_writes for line in (first, second)}
    assert flags == {False, True} or flags == {True}
    (inside,) = launches_of(programs.in_place, torch.randn(40))
    assert not inside.is_behind_writes


def test_what_a_launch_raises_behind_writes_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        scale[blocks(x.numel())](x, x.numel(), 2.0, BLOCK=16)
        add[blocks(y.numel())](x, y, out, y.numel(), BLOCK=16)
        return x + 1

    compiled = fusewright.compile(program, fullgraph=True, options=STRICT)
    x, y, out = (torch.ones(40) for _ in range(3))
    with torch.no_grad():
        compiled(x, y, out)

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise RuntimeError("no room for the kernel")

    monkeypatch.setattr(add, "pre_run_hooks", [fail])  # which Triton's interpreter calls
    x.fill_(1.0)
    with torch.no_grad(), pytest.raises(RuntimeError, match="no room") as raised:
        compiled(x, y, out)
    assert "must not happen twice" in "".join(raised.value.__notes__)
    assert (x == 2.0).all()  # once
