"""A recording that fails leaves torch able to record, to free memory and to draw random numbers, on
a model of what torch 2.11 remembers of one. The same on a GPU: `tests.gpu.test_user_kernels`.
"""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.runtime import cuda_driver, cuda_graphs
from fusewright.runtime.cuda_graphs import CudaDevice

Pool = tuple[int, int]


class Torch:
    """What torch's allocators and generators know of recordings, and how each step of one changes
    it, in torch's order. `unwinds`: as in later versions, one that fails is forgotten.
    """

    def __init__(self, *, unwinds: bool = False) -> None:
        self.unwinds = unwinds
        self.numbers = itertools.count(1)
        self.recorded_into: set[Pool] = set()
        self.pinned_recorded_into: set[Pool] = set()
        self.users: Counter[Pool] = Counter()
        self.generator_records = False
        self.refuses_to_begin = False
        self.stream = "idle"
        """Of the one stream that records: `idle`, `records`, or `broken` by an operator."""

    def graph(self) -> Graph:
        return Graph(self)

    def handle(self) -> Pool:
        return 0, next(self.numbers)

    def synchronize(self) -> None:
        """What may not be recorded: RuntimeError, and the recording is broken."""
        if self.stream != "idle":
            self.stream = "broken"
            raise RuntimeError("operation not permitted when stream is capturing")

    def draw(self) -> None:
        if self.generator_records and self.stream == "idle":
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    def end_allocations(self, device: int, pool: Pool) -> None:
        if pool not in self.recorded_into:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.recorded_into.remove(pool)

    def release(self, device: int, pool: Pool) -> None:
        assert self.users[pool] > 0
        self.users[pool] -= 1


class Graph:
    """A `torch.cuda.CUDAGraph`."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.pool: Pool | None = None
        self.is_whole = False

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        torch, self.pool = self.torch, pool or (next(self.torch.numbers), 0)
        torch.generator_records = True
        torch.users[self.pool] += 1
        if self.pool in torch.recorded_into | torch.pinned_recorded_into:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        torch.recorded_into.add(self.pool)
        torch.pinned_recorded_into.add(self.pool)
        if torch.refuses_to_begin:
            torch.refuses_to_begin = False
            raise RuntimeError("out of memory")
        assert torch.stream == "idle" and capture_error_mode == "thread_local"
        torch.stream = "records"

    def capture_end(self) -> None:
        torch, assured = self.torch, self.torch.stream == "records"
        torch.stream = "idle"
        if assured or torch.unwinds:
            torch.recorded_into.discard(self.pool)
            torch.pinned_recorded_into.discard(self.pool)
        if not assured:
            raise RuntimeError("operation failed due to a previous error during capture")
        torch.generator_records = False
        self.is_whole = True

    def reset(self) -> None:
        if self.pool is not None and (self.is_whole or self.torch.unwinds):
            self.torch.release(0, self.pool)
            self.torch.generator_records &= not self.torch.unwinds
        self.pool = None

    def __del__(self) -> None:
        self.reset()


class Stream:
    waited: list[object]
    """The streams that the current one has waited for."""

    def wait_stream(self, other: object) -> None:
        self.waited.append(other)

    def synchronize(self) -> None:
        """All is done at once."""


@pytest.fixture(params=[False, True], ids=["torch 2.11", "later"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Torch:
    model = Torch(unwinds=request.param)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", model.graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", model.handle)
    monkeypatch.setattr(cuda_driver, "own_stream", lambda owner, index: Stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch_compat.cuda, "_end_allocations", model.end_allocations)
    monkeypatch.setattr(torch_compat.cuda, "_release_pool", model.release)
    monkeypatch.setattr(cuda_graphs, "_BROKEN", [])
    monkeypatch.setattr(Stream, "waited", [], raising=False)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: zeros(*sizes))
    return model


def waits(model: Torch) -> tuple[Any, ...]:
    model.synchronize()
    return ()


def waits_unnoticed(model: Torch) -> tuple[Any, ...]:
    """As a library that asks for nothing that the driver answers."""
    with pytest.raises(RuntimeError):
        model.synchronize()
    return ()


def fails(model: Torch) -> tuple[Any, ...]:
    raise ValueError("of the program's own")


def cannot_begin(model: Torch) -> tuple[Any, ...]:
    return ()


WORDS: dict[Any, str] = {
    waits: "not permitted",
    waits_unnoticed: "previous error",
    fails: "of the program's own",
    cannot_begin: "out of memory",
}


@pytest.mark.parametrize("call", WORDS)
def test_torch_is_as_before(model: Torch, call: Callable[[Torch], tuple[Any, ...]]) -> None:
    device = CudaDevice(0)
    graph, _ = device.record(lambda inputs: (), [])
    for _ in range(2):
        model.refuses_to_begin = call is cannot_begin
        with pytest.raises(ValueError if call is fails else RuntimeError) as raised:
            device.record(lambda inputs: call(model), [])
        expected: dict[Any, str] = {
            waits: "not permitted",
            fails: "own",
            cannot_begin: "out of memory",
        }
        assert expected.get(call, "previous error") in str(raised.value)
        del raised  # It holds the recording.
        model.draw()
        assert not model.recorded_into and gc.isenabled()
        assert sum(model.users.values()) == 1  # of the recording that is whole
    again, outputs = device.record(lambda inputs: tuple(inputs), [1])
    assert graph.is_whole and again.is_whole and outputs == (1,)  # type: ignore[attr-defined]
    assert sum(model.users.values()) == 2


def test_one_recording_is_made_at_a_time(model: Torch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(inputs: list[Any]) -> tuple[Any, ...]:
        assert not gc.isenabled()
        begun.set()
        assert may_end.wait(10)
        return ()

    thread = threading.Thread(target=lambda: CudaDevice(0).record(slow, []))
    thread.start()
    assert begun.wait(10)
    threading.Timer(0.05, may_end.set).start()
    CudaDevice(0).record(lambda inputs: (), [])  # The model records once at a time.
    thread.join()
    assert may_end.is_set() and gc.isenabled()


def test_what_a_warm_up_did_before_an_exception_is_waited_for(model: Torch) -> None:
    device = CudaDevice(0)
    with pytest.raises(ValueError, match="of the program's own"):
        device.warm_up(lambda inputs: fails(model), [])
    assert Stream.waited[-1] is device._stream
