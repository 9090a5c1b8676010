"""What the comparison with torch.compile says of compilers that are right, wrong, or refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from fusewright.errors import Unsupported
from tests.operators.beside_torch_compile import main, outcome, own, read
from tests.operators.walk import operators


def eager(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return module


def off_by_a_little(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return lambda *tensors: module(*tensors) * 1.01


def wrong_in_training(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return lambda x, *others: module(x.detach() if x.requires_grad else x, *others) + 0 * x


def refusing(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    raise Unsupported("not today")


@pytest.mark.parametrize(
    ("compiler", "status", "stage"),
    [
        (eager, "right", ""),
        (own, "right", ""),
        (off_by_a_little, "wrong", "results"),
        (wrong_in_training, "wrong", "gradients"),
        (refusing, "refused", "results"),
    ],
)
def test_outcome(compiler: Any, status: str, stage: str) -> None:
    (info,) = operators(["sin"])
    found, reason, _ = outcome(compiler, info, torch.float32, 1, "cpu")
    assert found == status, reason
    assert stage in reason


def test_files_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, peer = tmp_path / "ours.jsonl", tmp_path / "peer.jsonl"
    for _ in range(2):  # the second time nothing is left to do
        main(["fusewright", str(ours), "sin", "cos", "--dtypes", "float32"])
    assert len(ours.read_text().splitlines()) == len(read(ours)) == 2
    peer.write_text(ours.read_text())
    ours.write_text(ours.read_text().replace("right", "wrong", 1))
    main(["table", str(ours), str(peer)])
    text = capsys.readouterr().out
    assert "ours.jsonl {'wrong': 1, 'right': 1}" in text
    assert "peer.jsonl {'right': 2}" in text
    assert any(
        line.startswith(("sin float32 wrong", "cos float32 wrong")) for line in text.split("\n")
    )
