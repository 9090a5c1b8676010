"""The interface of a language for kernels: writing groups, and making sources callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.ir.index import Index, Symbol
from fusewright.ir.kernel import CpuFacts, KernelFacts
from fusewright.ir.limits import PLAIN, PLAIN_PRODUCT, Limits, ProductForm
from fusewright.ir.program import Buffer
from fusewright.kernels.analysis import SizeHints
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
    """A few words that tell it from others: `4 x 256, 8 warps`."""

    source: str
    work: Work


Write = Callable[[Group, Sequence[str], Sequence[Symbol]], tuple[str, Work]]
"""The source for a group under canonical names, whose arguments are the tensors of these names and
then these sizes; and how much work a launch is.
"""


@record(kw_only=True)
class Implementation:
    """One way to do the work of a group: by several kernels, or by one written otherwise."""

    name: str
    write: Write
    parts: tuple[Group, ...]
    """The group itself, or what is to be done one after the other in its place."""

    temporaries: tuple[Buffer, ...] = ()
    """Buffers that the parts hand to each other."""


def one_way(group: Group, hints: SizeHints) -> Sequence[Implementation]:
    """No ways among which measuring would have to choose."""
    return ()


def _no_candidates(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol]
) -> Sequence[Candidate]:
    return ()


@record(kw_only=True)
class KernelLanguage:
    """A language that kernels are written in."""

    name: str
    """Begins the names of kernels, and leads generated modules to `load`."""

    write: Write

    load: Loader
    """Makes kernels of sources."""

    candidates: Callable[[Group, Sequence[str], Sequence[Symbol]], Sequence[Candidate]] = (
        _no_candidates
    )
    """The ways to write a group that are worth a trial, that of `write` first; none where there is
    no other.
    """

    products: frozenset[DType] = frozenset()
    """The types of matrix products that there are kernels for, whether or not they are faster than
    the library.
    """

    product_forms: tuple[ProductForm, ...] = (PLAIN_PRODUCT,)
    """What those kernels may do beside."""

    ways: Callable[[Group, SizeHints], Sequence[Implementation]] = one_way
    """The ways to do the work of a group under canonical names, of which `write` is the first,
    where it is not clear that this is the fastest; none where it is.
    """

    limits: Limits = PLAIN
    """Limits of the devices that it is for, which scheduling has to know."""

    target: str = ""
    """The target that sources are written for, where the language has several: kernels of two never
    share a name, since they cut their work into other units.
    """
