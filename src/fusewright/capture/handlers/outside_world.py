"""What acts on the world outside the program, or asks it something: each is a graph break that says
why.
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
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles, refusal
from fusewright.capture.values.functions import function_name

_LOGGER = logging.Logger
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_CLOCKS = (
    "time", "perf_counter", "monotonic", "process_time", "thread_time", "time_ns", "monotonic_ns",
    "perf_counter_ns", "sleep", "localtime", "gmtime", "strftime",
)  # fmt: skip
_LOGS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")

TABLE: dict[str, tuple[Any, ...]] = {
    "what it writes has to appear when the program comes to it": (
        print,
        *(vars(_LOGGER)[name] for name in _LOGS),
        *(vars(logging)[name] for name in _LOGS),
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
