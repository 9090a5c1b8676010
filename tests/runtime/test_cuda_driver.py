"""What machine code is loaded by, on a driver that only tells what it was asked."""

from __future__ import annotations

from typing import Any

import pytest

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

    def cuCtxGetCurrent(self, context: Any) -> int:
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.mode, mode._obj.value = mode._obj.value, self.mode
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
