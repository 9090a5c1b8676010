"""Skips the tests of capture under a Python whose bytecode it does not interpret yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fusewright.capture.frame_capture import INTERPRETED_VERSIONS

HERE = Path(__file__).parent
RUN_ANYWHERE = ("test_guards.py", "test_sources.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.version_info[:2] in INTERPRETED_VERSIONS:
        return
    skip = pytest.mark.skip(reason="capture does not interpret this Python's bytecode yet")
    for item in items:
        is_ours = item.path.is_relative_to(HERE) and item.path.parent.name != "bytecode"
        if is_ours and item.path.name not in RUN_ANYWHERE:
            item.add_marker(skip)
