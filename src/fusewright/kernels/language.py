"""The interface of a language for kernels: writing groups, and making sources callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


@record(kw_only=True)
class ChainPart:
    """A kernel that hands memory on to others, or is handed it by them."""

    group: Group
    """Under canonical names."""

    source: str
    tensors: tuple[str, ...]
    """The canonical names of its arguments."""

    memory: tuple[str, ...]
    """Names of the memory that they are: equal ones are the same memory."""

    units: int
    grain: int


@record(kw_only=True)
class Handover:
    """Memory that parts of a chain hand on to each other, and nobody else uses."""

    memory: str
    dtype: DType
    size: int
    """Elements."""


@record(kw_only=True)
class Pieces:
    """The pieces that a chain is done in: blocks of the rows of each of some batches."""

    batches: int
    rows: int
    block: int
    """Rows of a piece; the last one of a batch may have fewer."""

    @property
    def blocks(self) -> int:
        """The pieces of a batch."""
        return -(-self.rows // self.block)

    @property
    def count(self) -> int:
        return self.batches * self.blocks

    @property
    def is_of_batches(self) -> bool:
        """Whether a piece is a batch."""
        return self.blocks == 1

    def part(self, size: int) -> int:
        """The elements of a piece of so many in all, which all rows have equal parts of."""
        return size // self.batches if self.is_of_batches else self.row(size) * self.block

    def row(self, size: int) -> int:
        """The elements of a row."""
        return size // (self.batches * self.rows)


@record(kw_only=True)
class Chaining:
    """The functions by which a language makes one kernel of several that hand memory on."""

    ways_to_cut: Callable[[ChainPart, ChainPart], Sequence[Pieces]]
    """The ways to cut a chain that begins and ends with these kernels into pieces, the best first;
    none for kernels that begin or end none.
    """

    keeps_to_pieces: Callable[[ChainPart, str, Pieces, int], bool]
    """Whether each piece of a kernel touches only its own part of a memory of so many elements."""

    join: Callable[
        [Sequence[ChainPart], Mapping[str, str], Sequence[Handover], Pieces], Candidate | None
    ]
    """The kernel that does the work of parts, a piece after the other, where it is worth it; its
    arguments are named by the memory that they are, without what only the parts use.
    """


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

    chaining: Chaining | None = None
    """None: its kernels are never made one."""

    limits: Limits = PLAIN
    """Limits of the devices that it is for, which scheduling has to know."""

    target: str = ""
    """The target that sources are written for, where the language has several: kernels of two never
    share a name, since they cut their work into other units.
    """
