"""What happens for the first time while a GPU records breaks no recording: machine code is loaded,
libraries make what a thread needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.runtime.cuda_graphs import CudaDevice
from tests.gpu.support import CUDA, needs_gpu
from tests.gpu.test_cuda_graphs import replayed, replays
from tests.gpu.test_user_kernels import add, blocks
from tests.threads import in_threads

pytestmark = needs_gpu

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aligned": lambda x: x[:64],
    "not aligned": lambda x: x[1:65],
    "with gaps": lambda x: x[1:65:2],
}


def by_our_kernel(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def by_its_own_kernel(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.numel(), device=x.device)
    add[blocks(x.numel())](x, x, out, x.numel(), BLOCK=16)
    return out * 2


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("program", [by_our_kernel, by_its_own_kernel])
def test_inputs_that_move(program: Callable[[torch.Tensor], torch.Tensor], kind: str) -> None:
    """Both kernels have machine code of its own for pointers that are aligned."""
    compiled = replayed(program, fullgraph=True)
    inputs = [VIEWS[kind](torch.randn(80, device=CUDA)) for _ in range(6)]
    with torch.no_grad():
        for x in inputs:
            torch.testing.assert_close(compiled(x), program(x))
    assert replays(compiled) == 5


def test_another_thread_than_the_first_records() -> None:
    weight = torch.randn(64, 64, device=CUDA)
    compiled = replayed(lambda x: (x @ weight).relu())
    inputs = [torch.randn(16, 64, device=CUDA) for _ in range(5)]
    failures: list[BaseException] = []

    def call() -> None:
        try:
            with torch.no_grad():
                for x in inputs[1:]:
                    torch.testing.assert_close(compiled(x), (x @ weight).relu())
        except BaseException as error:
            failures.append(error)

    with torch.no_grad():
        compiled(inputs[0])
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert not failures
    assert replays(compiled) == 3


def test_the_program_records_the_first_call() -> None:
    """Our kernels are loaded in it."""
    compiled = fusewright.compile(lambda x: x.sin() * 3 - 1, options={"strict": True})
    x = torch.randn(1000, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    for _ in range(2):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(result, x.sin() * 3 - 1)


def test_what_runs_beside_a_recording_is_no_part_of_it() -> None:
    """On each stream that torch has to give, from another thread: it runs, once."""
    counters = torch.zeros(40, device=CUDA).add_(0).unbind()
    torch.cuda.synchronize()

    def add_everywhere(_: int) -> None:
        for counter in counters:
            with torch.cuda.stream(torch.cuda.Stream()):
                counter.add_(1)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        result = inputs[0] * 2
        in_threads(add_everywhere, 1)
        return (result,)

    x = torch.ones(3, device=CUDA)
    device = CudaDevice(0)
    graph, (result,) = device.record(call, [x])
    graph.replay()
    torch.cuda.synchronize()
    assert [counter.item() for counter in counters] == [1] * 40
    assert result.tolist() == [2, 2, 2]


def test_streams_of_recordings_are_used_again() -> None:
    handles = set()
    for _ in range(3):
        device = CudaDevice(0)
        handles.add(device._stream.cuda_stream)
    first, second = CudaDevice(0), CudaDevice(0)
    assert len(handles) <= 2 and first._stream != second._stream
