"""The interface of a language for kernels: writing groups, and making sources callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.ir.group import Group
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import CpuFacts, KernelFacts
from fusewright.ir.limits import PLAIN, Limits
from fusewright.records import record
from fusewright.runtime.targets import Loader


@record
class Work:
    """The amount of work of one launch, and the properties that all launches of a kernel have in
    common.
    """

    units: Index
    """Units of work, over canonical sizes."""

    facts: KernelFacts = CpuFacts(grain=1)


@record
class Candidate:
    """One way to write a group, among those that tuning tries."""

    name: str
    """What sets it apart from others, in words: `4 x 256, 8 warps`."""

    source: str
    work: Work


def _no_candidates(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol]
) -> Sequence[Candidate]:
    return ()


@record(kw_only=True)
class KernelLanguage:
    """A language that kernels are written in."""

    name: str
    """Begins the names of kernels, and leads generated modules to `load`."""

    write: Callable[[Group, Sequence[str], Sequence[Symbol]], tuple[str, Work]]
    """The source for a group under canonical names, whose arguments are the tensors of these names
    and then these sizes; and how much work a launch is.
    """

    load: Loader
    """Makes kernels of sources."""

    candidates: Callable[[Group, Sequence[str], Sequence[Symbol]], Sequence[Candidate]] = (
        _no_candidates
    )
    """The ways to write a group that are worth a trial, that of `write` first; none where there is
    no other.
    """

    limits: Limits = PLAIN
    """Limits of the devices that it is for, which scheduling has to know."""

    target: str = ""
    """The target that sources are written for, where the language has several: kernels of two never
    share a name, since they cut their work into other units.
    """
