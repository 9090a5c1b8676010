"""Kernels that tuning tries compute on a GPU what they should, whichever wins; matrix products in
Triton among them. What trials need of memory is what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.runtime import trials
from fusewright.runtime.trials import Alternative
from tests.gpu.support import CUDA, agree, needs_gpu
from tests.kernels.alternatives import is_library_call

pytestmark = needs_gpu

MODE = "max-autotune-no-cudagraphs"


class KernelsWin:
    """A timer for which library calls are slow, and one candidate of each kernel is fast."""

    def __init__(self, fastest: int) -> None:
        self.fastest = fastest

    def __call__(self, alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        for alternative in alternatives:
            alternative()
        torch.cuda.synchronize(device)
        if is_library_call(alternatives[0]):
            return [1000.0] * len(alternatives)
        fastest = min(self.fastest, len(alternatives) - 1)
        return [1.0 if number == fastest else 2.0 for number in range(len(alternatives))]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))


def tuned(target: Any, *arguments: Any, **keywords: Any) -> Any:
    """The explanation of a first call, tuned."""
    return fusewright.explain(target, mode=MODE, options={"strict": True}, **keywords)(*arguments)


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))


@pytest.mark.parametrize("fastest", [0, 1, 4, 7, 9, 11])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products(fastest: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TIMER", KernelsWin(fastest))
    x, w, b = (
        torch.randn(*size, device=CUDA, dtype=dtype) for size in ((200, 96), (333, 96), (333,))
    )
    explanation = tuned(linear, x, w / 10, b)
    assert explanation.graphs[0].library_calls == 0
    agree(explanation.result, linear(x, w / 10, b), factor=4)


@pytest.mark.parametrize("fastest", [0, 4, 9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_that_compute_their_operands(
    fastest: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads put side by side and activated, by a weight that is rounded: one kernel for all."""
    monkeypatch.setattr(trials, "TIMER", KernelsWin(fastest))

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        heads = torch.nn.functional.gelu(x).transpose(1, 2).reshape(-1, 96)
        return torch.nn.functional.linear(heads, w.to(x.dtype), b)

    x = torch.randn(4, 6, 50, 16, device=CUDA, dtype=dtype)
    w, b = torch.randn(333, 96, device=CUDA) / 10, torch.randn(333, device=CUDA, dtype=dtype)
    explanation = tuned(layer, x, w, b)
    assert (explanation.graphs[0].library_calls, explanation.graphs[0].launches) == (0, 1)
    agree(explanation.result, layer(x, w, b), factor=4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_batches_and_turned_operands(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TIMER", KernelsWin(2))

    def scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm(torch.bmm(q, k.mT).softmax(-1), v)

    q, k, v = (torch.randn(6, 70, 40, device=CUDA, dtype=torch.float16) for _ in range(3))
    explanation = tuned(scores, q, k, v, dynamic=dynamic)
    assert explanation.graphs[0].library_calls == 0
    agree(explanation.result, scores(q, k, v), factor=4)


def test_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TIMER", KernelsWin(3))
    x, w, b = (torch.randn(*size, device=CUDA) for size in ((1, 512), (640, 512), (640,)))
    explanation = tuned(linear, x, w / 10, b)
    agree(explanation.result, linear(x, w / 10, b), factor=4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_products_of_a_vector(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are one kernel, as sums of the same vector are."""
    monkeypatch.setattr(trials, "TIMER", KernelsWin(2))

    def gated(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        linear = torch.nn.functional.linear
        return torch.nn.functional.silu(linear(x, w)) * linear(x, v)

    x, w, v = (
        torch.randn(*size, device=CUDA, dtype=dtype) for size in ((1, 512), (640, 512), (640, 512))
    )
    explanation = tuned(gated, x, w / 10, v / 10)
    assert (explanation.graphs[0].library_calls, explanation.graphs[0].launches) == (0, 1)
    agree(explanation.result, gated(x, w / 10, v / 10), factor=4)


@pytest.mark.parametrize("fastest", [1, 3, 5, 8, 13])
def test_rows_and_points(fastest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TIMER", KernelsWin(fastest))

    def several(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.nn.functional.layer_norm(x, x.shape[-1:])
        return y, x.softmax(-1), x.sum(0), (x.T + 1).contiguous(), x.argmax(-1), x.view(-1)[::3] * 2

    x = torch.randn(257, 1000, device=CUDA)
    explanation = tuned(several, x)
    agree(explanation.result, several(x), factor=4)


def test_a_model_in_training() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512),
        torch.nn.GELU(),
        torch.nn.LayerNorm(512),
        torch.nn.Linear(512, 64),
    ).to(CUDA)
    x = torch.randn(128, 256, device=CUDA)
    model(x).sum().backward()
    wanted = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    tuned_model = fusewright.compile(model, mode=MODE, options={"strict": True})
    tuned_model(x).sum().backward()
    agree([parameter.grad for parameter in model.parameters()], wanted, factor=20)
    for half in fusewright.compilations(tuned_model)[0].halves:
        assert any(not trial.untried_because for trial in half.record.tuned)


def test_memory_of_trials() -> None:
    def rows(x: Tensor) -> Tensor:
        return x.softmax(-1).sum(0).softmax(-1)

    x = torch.randn(4096, 4096, device=CUDA)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    explanation = tuned(rows, x)
    peak = torch.cuda.max_memory_allocated() - before
    assert explanation.tuning is not None
    assert 0 < peak <= 1.1 * explanation.tuning.peak_bytes
    assert torch.cuda.memory_allocated() - before <= 2 << 20  # the result, and what torch keeps
