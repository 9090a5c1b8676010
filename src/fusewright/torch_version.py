"""The versions of torch that fusewright runs on."""

from __future__ import annotations

OLDEST, NEWEST = (2, 11), (2, 15)
"""Versions of torch that all names in `torch_compat` were seen in."""


def version_of(text: str) -> tuple[int, int]:
    """The major and minor number: (2, 13) of "2.13.0+cpu"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def refused_version(version: str) -> str | None:
    """One sentence for a version of torch that is too old; None for all others."""
    if version_of(version) >= OLDEST:
        return None
    (a, b), (c, d) = OLDEST, NEWEST
    return (
        f"fusewright needs torch {a}.{b} or newer, and this is torch {version}: "
        f"pip install 'torch>={a}.{b},<{c}.{d + 1}'"
    )


def unknown_version(version: str) -> str | None:
    """One sentence for a version of torch that is newer than those known; None for all others."""
    if version_of(version) <= NEWEST:
        return None
    major, minor = NEWEST
    return (
        f"fusewright was tested with torch up to {major}.{minor}, and this is torch {version}: "
        "it is tried all the same; please report what fails"
    )
