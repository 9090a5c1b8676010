"""The kernels that may compute the groups of one structure, among which tuning chooses."""

from __future__ import annotations

from fusewright.ir.canonical import CanonicalNames
from fusewright.ir.group import Group
from fusewright.ir.index import Index
from fusewright.ir.kernel import Kernel
from fusewright.kernels.language import KernelLanguage
from fusewright.records import record


@record(kw_only=True)
class KernelCandidate:
    """One of the kernels, and the work of a launch."""

    name: str
    """A few words that tell it from the others."""

    kernel: Kernel
    units: Index
    """Over canonical sizes."""


@record(kw_only=True)
class CandidateSet:
    """The kernels for one structure; the first is what is taken untried."""

    group: Group
    """The group of this structure that was met first."""

    names: CanonicalNames
    language: KernelLanguage
    candidates: tuple[KernelCandidate, ...]
