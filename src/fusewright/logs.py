"""`FUSEWRIGHT_LOG=graphs,breaks,…`: print what is logged, without a line of configuration.

Python's `logging` has it all under `fusewright`; this switches single loggers on, to stderr.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Final

from fusewright.errors import PACKAGE, did_you_mean

CHANNELS: Final = {
    "capture": "each call that is captured",
    "graphs": "each graph, with its operators",
    "functions": "what runs in place of each captured function, as Python and as bytecode",
    "guards": "the guards of each graph",
    "breaks": "graph breaks, with reason and line",
    "recompiles": "guards that failed, and limits that were reached",
    "fallbacks": "what runs eagerly",
    "backend": "exceptions of backends",
    "aten": "the ATen graph of each graph",
    "loops": "the fused loops of each graph",
    "kernels": "the source of each kernel",
    "choices": "kernels that were timed, and which was fastest",
    "wrapper": "the Python module that calls the kernels",
}
"""Names in `FUSEWRIGHT_LOG`, and what each prints."""

_IMPORTING: Final = "<frozen importlib"

_INTERNAL: Final = (PACKAGE, _IMPORTING, importlib.__file__)
"""How the names of files begin that are not the user's program."""

_LOGGERS: Final = {"breaks": "graph_breaks"}
"""Channels whose logger is named otherwise."""


def logger_of(channel: str) -> logging.Logger:
    """The logger of a channel, such as `fusewright.graphs`."""
    return logging.getLogger(f"fusewright.{_LOGGERS.get(channel, channel)}")


def print_channels(setting: str) -> None:
    """Print the channels that a comma-separated list names; `all` names every one.

    Warns of names that are not known, and goes on.
    """
    wanted = [name.strip() for name in setting.split(",") if name.strip()]
    for name in CHANNELS if "all" in wanted else wanted:
        if name not in CHANNELS:
            _warn_of_unknown(name)
            continue
        logger = logger_of(name)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False


def log_text(channel: str, text: Callable[[], str]) -> None:
    """Log a text, made only where somebody listens to the channel."""
    logger = logger_of(channel)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s", text())


def warn(text: str) -> None:
    """Warn the user, at the line of the program that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL):
        # `warnings` counts no frames of Python's import system.
        level += not frame.f_code.co_filename.startswith(_IMPORTING)
        frame = frame.f_back
    warnings.warn(f"fusewright: {text}", RuntimeWarning, stacklevel=level)


def _warn_of_unknown(name: str) -> None:
    warn(f"FUSEWRIGHT_LOG: {name!r} is not known; {did_you_mean(name, [*CHANNELS, 'all'])}")


# Without this, logging would print warnings that Python's `warnings` show already.
logging.getLogger("fusewright").addHandler(logging.NullHandler())
print_channels(os.environ.get("FUSEWRIGHT_LOG", ""))
