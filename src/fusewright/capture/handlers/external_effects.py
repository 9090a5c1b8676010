"""Functions that act on the world outside the program, or ask it something: each is a graph break
that says why.
"""

from __future__ import annotations

import builtins
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, refusal
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.functions import function_name
from fusewright.torch_compat.distributed import DATA_PARALLEL

_LOGGER = logging.Logger
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_CLOCKS = (
    "time", "perf_counter", "monotonic", "process_time", "thread_time", "time_ns", "monotonic_ns",
    "perf_counter_ns", "sleep", "localtime", "gmtime", "strftime",
)  # fmt: skip
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""The methods of a logger that write at a level."""

_WRITES = "what it writes has to appear when the program comes to it"

TABLE: dict[str, tuple[Any, ...]] = {
    _WRITES: (
        print,
        _LOGGER.log,
        _LOGGER.warn,
        *(vars(logging)[name] for name in (*_LEVELS, "warn", "log")),
        warnings.warn,
        warnings.warn_explicit,
        warnings.catch_warnings,
        warnings.simplefilter,
        warnings.filterwarnings,
    ),
    "it asks the clock, whose answer is another in each call": tuple(
        vars(time)[name] for name in _CLOCKS
    ),
    "it reads or changes the system that the program runs on": (
        builtins.open,
        builtins.input,
        builtins.breakpoint,
        os.system,
        os.putenv,
        os.listdir,
        os.getcwd,
        os.getpid,
        os.urandom,
        os.stat,
        os.mkdir,
        os.remove,
        subprocess.run,
        subprocess.Popen,
    ),
    "it reduces gradients between processes; the module within is compiled by itself": (
        () if DATA_PARALLEL is None else (DATA_PARALLEL.forward,)
    ),
    "it waits for other threads": tuple(
        getattr(lock, name)
        for lock in _LOCKS
        for name in ("__enter__", "__exit__", "acquire", "release")
    ),
    "it runs, or looks at, frames that capture does not see": (
        builtins.eval,
        builtins.exec,
        builtins.compile,
        builtins.__import__,
        sys._getframe,
        sys.settrace,
        sys.setprofile,
    ),
}
"""Callables by what about them cannot be captured."""


for _detail, _functions in TABLE.items():
    for _function in _functions:
        handles(_function)(
            refusal(reasons.OUTSIDE_WORLD, function=function_name(_function), detail=_detail)
        )


@handles(_LOGGER.isEnabledFor)
def is_enabled_for(machine: Machine, logger: Value, level: Value) -> Any:
    """The method itself, which then finds the answers that a logger keeps: they are guarded."""
    real = logger.real()
    if isinstance(real, _LOGGER):
        for number in _LEVELS.values():
            _LOGGER.isEnabledFor(real, number)
    return DECLINED


def _log(method: Callable[..., Any], level: int) -> Callable[..., None]:
    """A handler for a method of a logger: nothing where the logger writes nothing at its level."""
    refuse = refusal(reasons.OUTSIDE_WORLD, function=function_name(method), detail=_WRITES)

    def call(machine: Machine, logger: Value, /, *arguments: Value, **keywords: Value) -> None:
        ask = machine.attribute(logger, "isEnabledFor")
        if machine.truth(machine.call(ask, [machine.new(level)])):
            refuse(machine)

    return call


for _name, _level in _LEVELS.items():
    _method = vars(_LOGGER)[_name]
    handles(_method)(_log(_method, _level))
