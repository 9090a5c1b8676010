"""What loads machine code and makes streams, on a driver that only tells what it was asked."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from fusewright.runtime import cuda_driver
from fusewright.runtime.cuda_driver import DriverRefused

THREAD_LOCAL, RELAXED = 1, 2


class Library:
    """A driver in a thread that records a CUDA graph."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.mode = THREAD_LOCAL
        self.modes: list[int] = []
        """What the thread was allowed when it loaded, and when it looked for the function."""

        self.streams = 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        self.modes.append(self.mode)
        self.streams += 1
        stream._obj.value = self.streams
        return 0

    def cuModuleLoadData(self, module: Any, code: bytes) -> int:
        self.modes.append(self.mode)
        return self.error

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        self.modes.append(self.mode)
        function._obj.value = 0x22
        return 0

    def cuGetErrorString(self, error: int, text: Any) -> None:
        text._obj.value = b"no binary for this GPU"


@pytest.mark.parametrize("error", [0, 209])
def test_a_thread_that_records_may_load(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(error)
    monkeypatch.setattr(cuda_driver, "library", lambda: library)
    monkeypatch.setattr(cuda_driver, "context", lambda device: 0x11)
    if error:
        with pytest.raises(DriverRefused, match="loading entry: no binary for this GPU"):
            cuda_driver.load(0, b"code", "entry", 0)
    else:
        assert cuda_driver.load(0, b"code", "entry", 0) == 0x22
    assert set(library.modes) == {RELAXED} and library.mode == THREAD_LOCAL


def test_a_stream_has_one_owner_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(0)
    monkeypatch.setattr(cuda_driver, "library", lambda: library)
    monkeypatch.setattr(cuda_driver, "context", lambda device: 0x11)
    monkeypatch.setattr(cuda_driver, "_IDLE_STREAMS", defaultdict(list))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (device, handle))
    owners = [Library(0) for _ in range(3)]
    streams = [
        cuda_driver.own_stream(owner, device)
        for owner, device in zip(owners, [0, 0, 1], strict=True)
    ]
    assert streams == [(0, 1), (0, 2), (1, 3)]
    del owners[1]
    assert [cuda_driver.own_stream(owners[0], device) for device in (1, 0)] == [(1, 4), (0, 2)]
    assert set(library.modes) == {RELAXED} and library.mode == THREAD_LOCAL
