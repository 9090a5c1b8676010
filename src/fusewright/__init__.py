"""fusewright: a small, fast, readable compiler stack for PyTorch programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusewright.api import (
        allow_in_graph,
        assume_constant_result,
        compilations,
        compile,
        disable,
        disallow_in_graph,
        explain,
        export,
        graph_break,
        is_compiling,
        list_backends,
        lookup_backend,
        mark_dynamic,
        register_backend,
        reset,
        run,
    )
    from fusewright.bisection import bisect, minify
    from fusewright.packages.building import aot_compile
    from fusewright.packages.calls import EntryPoint
    from fusewright.packages.loading import load

__version__ = "0.1.0"

__all__ = [
    "EntryPoint",
    "__version__",
    "allow_in_graph",
    "aot_compile",
    "assume_constant_result",
    "bisect",
    "compilations",
    "compile",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "list_backends",
    "load",
    "lookup_backend",
    "mark_dynamic",
    "minify",
    "register_backend",
    "reset",
    "run",
]


_ELSEWHERE = {
    "EntryPoint": "packages.calls",
    "aot_compile": "packages.building",
    "bisect": "bisection",
    "load": "packages.loading",  # which needs no compiler
    "minify": "bisection",
}
"""By name, the module that it stands in; the others stand in `fusewright.api`."""


def __getattr__(name: str) -> Any:
    """Load the compiler when it is first asked for, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    context = importlib.import_module("fusewright.context")
    with context.COLLECTOR_PAUSE:  # A collection would visit all objects of torch: half the time.
        where = importlib.import_module(f"fusewright.{_ELSEWHERE.get(name, 'api')}")
        return getattr(where, name)
