"""The versions of torch that fusewright runs on."""

from __future__ import annotations

OLDEST, NEWEST = (2, 11), (2, 13)
"""Versions of torch that all names in `torch_compat` were seen in."""


def version_of(text: str) -> tuple[int, int]:
    """The major and minor number: (2, 13) of "2.13.0+cpu"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def unsupported_version(version: str) -> str | None:
    """One sentence for a version of torch that fusewright does not run on; None where it does."""
    major, minor = version_of(version)
    if OLDEST <= (major, minor) <= NEWEST:
        return None
    (a, b), (c, d) = OLDEST, NEWEST
    return (
        f"fusewright needs torch {a}.{b} to {c}.{d}, and this is torch {version}: "
        f"pip install 'torch>={a}.{b},<{c}.{d + 1}'"
    )
