"""Loggers in compiled functions: one that writes nothing at the level of a message is part of the
graph, for as long as it writes nothing; another breaks it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fusewright import api

X = torch.ones(2)
NAME = "tests.capture.test_logging"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)
    found.disabled = False


def tells(logger: logging.Logger) -> Any:
    def f(x: Any, step: int) -> Any:
        logger.debug("step %d, shape %s", step, tuple(x.shape))
        x = x * 2
        logger.info("%s", x)
        return x + 1

    return f


def test_a_silent_logger_is_no_break(logger: logging.Logger) -> None:
    logger.setLevel(logging.WARNING)
    compiled = api.compile(tells(logger), backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(X, 3).tolist() == [3, 3]
    assert compiled.compiler.capture_count == 1


@pytest.mark.filterwarnings("ignore")
def test_a_logger_that_begins_to_write(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = api.compile(tells(logger), backend="eager")
    for level, messages in (
        (logging.ERROR, []),
        (logging.INFO, ["tensor([2., 2.])"]),
        (logging.ERROR, []),
        (logging.DEBUG, ["step 3, shape (2,)", "tensor([2., 2.])"]),
    ):
        logger.setLevel(level)
        caplog.clear()
        assert compiled(X, 3).tolist() == [3, 3]
        assert [each.getMessage() for each in caplog.records if each.name == NAME] == messages
    logger.disabled = True
    caplog.clear()
    compiled(X, 3)
    assert not [each for each in caplog.records if each.name == NAME]


class Loud(logging.Logger):
    """A logger that says itself when it writes."""

    heard = 0

    def isEnabledFor(self, level: int) -> bool:  # the name is that of the base
        self.heard += 1
        return False


def test_a_logger_of_ones_own() -> None:
    mine, theirs = Loud("mine"), Loud("theirs")
    compiled, function = api.compile(tells(mine), backend="eager"), tells(theirs)
    for _ in range(3):
        compiled(X, 3)
        function(X, 3)
    assert mine.heard == theirs.heard
