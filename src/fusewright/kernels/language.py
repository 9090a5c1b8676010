"""What a language for kernels supplies: how groups are written, and how sources become callable."""

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
    """How much there is to do in one launch, and what all launches of a kernel have in common."""

    units: Index
    """Units of work, over canonical sizes."""

    facts: KernelFacts = CpuFacts(grain=1)


@record(kw_only=True)
class KernelLanguage:
    """What kernels are written in."""

    name: str
    """Begins the names of kernels, and leads generated modules to `load`."""

    write: Callable[[Group, Sequence[str], Sequence[Symbol]], tuple[str, Work]]
    """The source for a group under canonical names, whose arguments are the tensors of these names
    and then these sizes; and how much work a launch is.
    """

    load: Loader
    """Makes kernels of sources."""

    limits: Limits = PLAIN
    """What scheduling has to know of the devices that it is for."""

    target: str = ""
    """What sources are written for, where the language has several targets: kernels of two never
    share a name, since they cut their work into other units.
    """
