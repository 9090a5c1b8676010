"""Results of replays on a GPU are handed out without a copy, and right as long as they are held."""

from __future__ import annotations

import pytest
import torch

from benchmarks.models import Perceptron
from tests.gpu.support import CUDA, agree, needs_gpu
from tests.gpu.test_cuda_graphs import replayed, replays

pytestmark = needs_gpu

MIB = 2**20


@pytest.fixture(autouse=True)
def without_gradients(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: torch.set_grad_enabled(True))
    torch.set_grad_enabled(False)


def test_a_call_needs_no_memory() -> None:
    module = Perceptron(width=512, hidden=512, depth=2).to(CUDA)
    x = torch.randn(4096, 512, device=CUDA)  # of 8 MiB, as the result is
    compiled = replayed(module)
    for _ in range(3):
        compiled(x)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = compiled(x)
    assert torch.cuda.max_memory_allocated() - before < MIB
    agree(result, module(x), factor=20)
    assert replays(compiled) == 3


def test_results_that_are_kept() -> None:
    module = Perceptron(width=64, hidden=128, depth=2).to(CUDA)
    compiled = replayed(module)
    inputs = [torch.randn(16, 64, device=CUDA) for _ in range(10)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        agree(result, module(x), factor=20)
    assert replays(compiled) == 9


def test_a_dropped_result_that_another_stream_still_reads() -> None:
    compiled, side = replayed(lambda x: x * 2 + 1), torch.cuda.Stream()
    x, y = torch.randn(2, 1 << 20, device=CUDA)
    expected = x * 2 + 1
    for _ in range(3):
        compiled(x)
    result = compiled(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # cycles: some hundredths of a second
        read = result.clone()
    result.record_stream(side)
    del result
    x.copy_(y)
    for _ in range(3):
        compiled(x)
    torch.cuda.synchronize()
    agree(read, expected)
    assert replays(compiled) == 6
