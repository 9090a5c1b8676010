"""Every option of a compile, in one frozen object: few knobs, each documented."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user may choose about one compile; passed down explicitly, never read from ambient
    state.
    """

    strict: bool = False
    """Turn quiet fall-backs to eager into errors. Also set by `FUSEWRIGHT_STRICT=1`."""

    verify: bool = False
    """Run the IR verifier between stages. On in tests."""

    expression_limit: int = 64
    """A lazy value whose expression grows past this many operations is realised into a buffer."""

    kernel_target: str = "auto"
    """CPU features that kernels are compiled for: auto (this machine), avx2, avx512 or scalar."""

    @classmethod
    def from_user(cls, given: dict[str, Any] | None) -> Options:
        """Build options from a user's dictionary; an unknown name is an error that lists the
        names.
        """
        given = dict(given or {})
        names = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - names)
        if unknown:
            raise TypeError(
                f"unknown option {', '.join(unknown)}; the options are: {', '.join(sorted(names))}"
            )
        if os.environ.get("FUSEWRIGHT_STRICT") == "1":
            given.setdefault("strict", True)
        return cls(**given)
