"""fusewright: a small, fast, readable compiler stack for PyTorch programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusewright.api import compilations, compile, disable, reset
    from fusewright.backends.registry import list_backends, lookup_backend, register_backend

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compilations",
    "compile",
    "disable",
    "list_backends",
    "lookup_backend",
    "register_backend",
    "reset",
]

_ELSEWHERE = {
    "list_backends": "fusewright.backends.registry",
    "lookup_backend": "fusewright.backends.registry",
    "register_backend": "fusewright.backends.registry",
}
"""Where the names stand that are not in `fusewright.api`."""


def __getattr__(name: str) -> Any:
    """Load the compiler when it is first asked for, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "fusewright.api")), name)
