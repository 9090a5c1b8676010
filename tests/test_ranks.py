"""Processes of a job tell each other what they compile: here two watches of one store."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from fusewright import ranks
from fusewright.ranks import Watch

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Watch, Watch]]:
    monkeypatch.setattr(ranks, "NOTICE_SECONDS", 0.08)
    store = dist.HashStore()
    both = Watch(store, 0), Watch(store, 1)
    yield both
    for watch in both:
        watch.stop()


def said(seconds: float = 0.4) -> list[str]:
    """What is warned of within some seconds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        time.sleep(seconds)
    return [str(warning.message) for warning in caught]


def test_one_that_compiles_nothing_says_whom_it_may_wait_for(watches: tuple[Watch, Watch]) -> None:
    watches[1].begin("f, model.py:3")
    (text,) = said()
    assert "rank 1 compiles f, model.py:3, for" in text and "rank 0, compiles nothing" in text
    watches[1].end()
    assert said(0.2) == []


def test_nobody_waits_where_all_compile(watches: tuple[Watch, Watch]) -> None:
    for watch in watches:
        watch.begin("f, model.py:3")
    assert said() == []
    watches[1].end()
    assert [text for text in said() if "rank 0 compiles" in text]  # though it had begun first
    watches[0].end()


def test_what_is_done_is_forgotten(watches: tuple[Watch, Watch]) -> None:
    watches[0].begin("f, model.py:3")
    watches[0].begin("g, model.py:9")
    watches[0].end()
    watches[0].end()
    assert said() == [] and watches[0].store.get("fusewright/compiling") == b""
