"""Steps of optimisers on a GPU: they move parameters as eager's do, in few launches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from tests.gpu.support import CUDA, needs_gpu

pytestmark = needs_gpu

SIZES = [(3 + n % 7, 1 + 97 * (n % 31)) for n in range(700)]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_a_step_of_many_parameters(kind: str, foreach: bool) -> None:
    options: dict[str, Any] = {"lr": 0.1, "foreach": foreach, "weight_decay": 0.01}
    if kind == "SGD":
        options["momentum"] = 0.9
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(size, generator=generator) for size in SIZES]
    ours, theirs = ([torch.nn.Parameter(s.to(CUDA)) for s in starts] for _ in range(2))
    optimizer, eager = (getattr(torch.optim, kind)(own, **options) for own in (ours, theirs))
    step = fusewright.compile(optimizer.step, options={"strict": True})
    for _ in range(3):
        for parameter, other in zip(ours, theirs, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(CUDA)
            other.grad = parameter.grad.clone()
        step()
        eager.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    launched = sum(event.count for event in profile.key_averages())
    assert 0 < launched <= 10
