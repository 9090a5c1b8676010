"""What holds for the whole process while any thread needs it."""

from __future__ import annotations

import gc
import threading

import pytest

from fusewright.context import COLLECTOR_PAUSE, WhileUsed


def test_the_first_begins_and_the_last_ends() -> None:
    told: list[str] = []

    def begin():  # type: ignore[no-untyped-def]
        told.append("begin")
        return lambda: told.append("end")

    used = WhileUsed(begin)
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with used:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with pytest.raises(KeyError), used:
        thread.start()
        assert inside.wait(10) and told == ["begin"]
        raise KeyError
    assert told == ["begin"]
    leave.set()
    thread.join()
    assert told == ["begin", "end"]
    with used, used:
        assert told == ["begin", "end", "begin"]
    assert told == ["begin", "end", "begin", "end"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    try:
        gc.enable() if enabled else gc.disable()
        with COLLECTOR_PAUSE:
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
