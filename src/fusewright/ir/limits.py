"""Limits of the devices that kernels run on, for scheduling: how much work they do at a time, and
how much a kernel can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.records import record, replace


def _holds(group: Group) -> bool:
    return True


ALIGNED_ROW_BYTES = 16
"""The largest piece of memory that a thread of a GPU loads or stores at once."""


def aligned_elements(dtype: DType) -> int:
    """The elements of such a piece."""
    return max(1, ALIGNED_ROW_BYTES // dtype.bytes)


@record(kw_only=True)
class ProductSizes:
    """The size of a matrix product: `batches` times rows x depth by depth x columns."""

    dtype: DType
    """The type of both operands and of the result."""

    batches: int
    rows: int
    columns: int
    depth: int

    lies_along_depth: bool = False
    """Whether both operands are contiguous along the depth, so that an element of the result is
    made of two rows of memory.
    """

    has_aligned_operands: bool = False
    """Whether their rows begin at multiples of `ALIGNED_ROW_BYTES`."""

    is_uneven: bool = False
    """Whether the rows of the result surely do not, where they follow each other."""

    @property
    def lies_in_pairs(self) -> bool:
        """Whether both operands are pairs of bfloat16 along the depth, each in 32 bits."""
        is_even = self.has_aligned_operands and self.depth % 2 == 0
        return self.dtype is DType.BF16 and self.lies_along_depth and is_even

    @property
    def is_of_a_vector(self) -> bool:
        """Whether one operand is a vector, so that each element of the other is needed once."""
        return self.batches == 1 and 1 in (self.rows, self.columns)


@record(kw_only=True)
class ProductForm:
    """How kernels compute a matrix product, and what they do beside."""

    is_sum: bool = False
    """Whether it is a sum of products like any other, which fuses with its neighbours; only of a
    vector.
    """

    computes_operands: bool = False
    """Whether it computes what it multiplies for each of its tiles anew, where nobody else reads
    that.
    """

    has_followers: bool = True
    """Whether what is computed of its results, point by point, fuses with it. Bias and rounding
    always do.
    """

    def suits(self, product: ProductSizes) -> bool:
        """Whether a product can be computed so."""
        return product.is_of_a_vector or not self.is_sum


PLAIN_PRODUCT = ProductForm()


@record(kw_only=True)
class AttentionSizes:
    """The size of an attention: `batches` (batches times heads) times rows of scores of as many
    positions, each a product of two vectors.
    """

    dtype: DType
    batches: int
    rows: int
    positions: int

    width: int
    """Elements of a vector: the size of a head."""

    is_causal: bool
    """Whether a row sees no position behind its own, so that a library may leave half out."""

    is_whole: bool = False
    """Whether all scores lie in memory at the same time; else those of a block of rows."""


def _never(sizes: ProductSizes | AttentionSizes) -> bool:
    return False


def _plain(sizes: ProductSizes) -> ProductForm:
    return PLAIN_PRODUCT


FEW_ROWS_OF_CPU = 16

WALKED_LANES = 1 << 10
"""Results of a CPU that are gathered at once from rows that lie across memory: a page of floats."""

WALKED_ELEMENTS = 1 << 19
"""Elements, some of which lie in no cache of one core, from which on that is done."""

HELD_ROWS = 1 << 10
"""Rows, across memory, that a CPU's kernel may go through several times: pieces of each, as wide as
a few vectors, stay in a core's cache. A batch norm of 1,000 rows of 2,304 takes half the time so,
one of 4,096 of 512 twice the time (an AMD EPYC).
"""

CACHE_LINE = 64
"""Bytes that come from memory together."""

CACHE_SETS, CACHE_WAYS = 2048, 8
"""A core's cache: so many sets, one line after the other, of so many lines each."""


def held_lines(step: int) -> int:
    """How many lines, `step` bytes apart, stay in a core's cache: of rows a large power of two
    apart, few, since all lie in the same sets.
    """
    if step % CACHE_LINE:
        return CACHE_SETS * CACHE_WAYS
    return CACHE_SETS // math.gcd(CACHE_SETS, step // CACHE_LINE) * CACHE_WAYS


def _is_clear(rows: int, length: int) -> bool:
    return False


@record(kw_only=True)
class Limits:
    """The numbers of one kind of device. By default those of a CPU with some tens of cores."""

    parallel_points: int = 16
    """A fusion must leave this many points of outer loops, unless the work is small."""

    reductions: int = FEW_ROWS_OF_CPU
    """How many rows or tiles of rows make a reduction parallel enough."""

    walks_rows: bool = False
    """Whether a kernel goes through many rows that lie across memory row by row, `WALKED_LANES`
    results at once.
    """

    longest_tile: int = 0
    """Elements that are worked through one after the other where a second kernel would cost as
    much.
    """

    lanes: int = 1
    """Neighbouring results that are computed together where memory is contiguous along them."""

    across_share: int = 1
    """Memory counts as contiguous along results where more than one in so many elements are so."""

    chunks: int = 32
    """Parts that a large reduction is cut into, about."""

    shares_chunks: bool = False
    """Whether these are the parts of all its results together."""

    stripes: int = 0
    """Stripes of rows, about, in each of which one program adds up the columns while it does what
    each row needs; 0: no program does.
    """

    shortest_chunk: int = 1
    """Elements that a part has at least."""

    leaves_whole: Callable[[int, int], bool] = _is_clear
    """Whether scheduling does not cut a reduction of so many rows, or tiles of rows, of this
    length, though they are few.
    """

    leaves_open: Callable[[int, int], bool] = _is_clear
    """Whether it is not clear if it should: then measuring tells (`kernels.ways`)."""

    cheap_cost: int = 4
    """A value of at most this cost may be computed again wherever it is read."""

    operations_a_byte: int = 0
    """The same, for each byte of an element, where that is more: so many operations take as long as
    storing it and loading it again does longer than loading what it is made of.
    """

    row_bytes: int = 1 << 17
    """A longer row is no local: it stays a buffer in memory."""

    held_row: int = 0
    """Elements of the longest row that a kernel reads once for all its stages; 0: any row stays in
    cache.
    """

    held_across: int = 0
    """The same, of rows that lie across memory."""

    @property
    def longest_row(self) -> int:
        """Elements of the longest row that is read once for all stages, about: by a kernel that
        holds it, or because it stays in cache.
        """
        return self.held_row or self.row_bytes // 4

    multiplies: Callable[[ProductSizes], bool] = _never
    """Whether kernels compute a matrix product faster than the device's library does."""

    product_form: Callable[[ProductSizes], ProductForm] = _plain
    """What those kernels do beside."""

    wants_aligned_rows: Callable[[ProductSizes], bool] = _never
    """Whether the library is much faster at a matrix product where the rows of its operands begin
    at multiples of `ALIGNED_ROW_BYTES`, and what it sums over is as many pieces of them.
    """

    attends: Callable[[AttentionSizes], bool] = _never
    """Whether kernels compute an attention whose scores lie in memory faster than the device's
    library does.
    """

    chains: bool = False
    """Whether launches that hand memory on become one, which holds a piece of it at a time."""

    adds_atomically: bool = False
    """Whether points of a scatter that meet in one element may run at the same time."""

    most_buffers: int = 1 << 30
    """Buffers that a kernel may be given."""

    batches_launches: bool = False
    """Whether launches that differ in their tensors and sizes alone become one in the end."""

    does_parts_at_once: bool = False
    """Whether a point does an element of each of a few equal parts of a loop, where conditions tell
    the parts apart: elsewhere they are computed for all of them, and one is taken.
    """

    loads_first: bool = False
    """Whether kernels load all that a stage loads before they store what it stores."""

    mirrors_rows: bool = False
    """Whether kernels go along rows from their ends as well as from their beginnings."""

    holds_rows: Callable[[Group], bool] = _holds
    """Whether a group's kernel holds its rows from stage to stage. One that does not computes them
    again, so that what they are made of may not be overwritten.
    """

    def are_enough_stripes(self, count: int) -> bool:
        """Whether so many stripes of rows are work enough for the device: a quarter of `stripes`
        is. Never where no program goes through stripes.
        """
        return 0 < self.stripes <= 4 * count


HALF_TYPES = frozenset({DType.BF16, DType.F16})

FEW_HALF_ROWS = 6
"""Rows up to which a product of half types reads its right operand and does little else, so that
instructions for such types are no gain: 1.04 to 3.5 times the library's speed with them.
"""

FEW_ROWS_OF_PAIRS = 8
"""The same, where kernels multiply pairs of bfloat16 by such an instruction where both operands are
contiguous along the depth: 1.3 to 3.4 times the library's speed.
"""

MORE_ROWS_OF_PAIRS = 16
"""The same, where both operands lie in pairs along the depth: vectors run along it, and nothing is
packed.
"""

PACKED_PAIRS = 1 << 16
"""Elements of a right operand up to which packing it costs less than a call of the library."""


def multiplies_pairs(product: ProductSizes) -> bool:
    """Whether kernels are faster than the library at a product of bfloat16 whose operands lie in
    pairs: 1.03 to 1.15 times for 48 rows and more, 1.1 to 1.4 for up to 16. What is packed between
    these is multiplied with too few rows, and so is a deep panel with fewer than 128.
    """
    if product.rows <= MORE_ROWS_OF_PAIRS or product.columns * product.depth <= PACKED_PAIRS:
        return True
    return product.rows >= 48 and (product.rows >= 128 or product.depth <= 1024)


MOST_SCORES = 28 << 20
"""Bytes of an attention's scores up to which they lie in memory: beyond 32 MiB, memory comes from
the system anew at each call, and leaves the caches before it is read.
"""

MOST_POSITIONS = 1 << 12
"""Positions of which a kernel holds the scores of a block of rows at a time."""

MOST_CAUSAL_ROWS = 512


def attends(sizes: AttentionSizes) -> bool:
    """Whether a CPU's kernels are faster than the library's at an attention: 1.4 to 2 times in
    single precision, 1.5 to 3.6 with half types, and 10 to 30 for one row of these.
    """
    if sizes.dtype is not DType.F32 and sizes.dtype not in HALF_TYPES:
        return False
    if sizes.is_causal and sizes.rows > MOST_CAUSAL_ROWS:
        return False
    if not sizes.is_whole and sizes.batches > 1 and sizes.positions <= MOST_POSITIONS:
        return True
    return 4 * sizes.batches * sizes.rows * sizes.positions <= MOST_SCORES


MOST_IN_ORDER = 1 << 16
"""The longest row of few that is left whole: a sum of more would be rounded more often than that
of eager, which adds up parts.
"""


@record
class RowsOnThreads:
    """How rows, which a thread goes through one after the other, are divided over threads."""

    threads: int

    def are_whole(self, rows: int, length: int) -> bool:
        """Whether a reduction of few rows is not to be cut by rule: each thread has as many."""
        return length <= MOST_IN_ORDER and (rows % self.threads == 0 or self.are_open(rows, length))

    def are_open(self, rows: int, length: int) -> bool:
        """Whether chunks may gain what another kernel costs, some microseconds: threads would have
        unequal parts, of some length.
        """
        elements = rows * length
        turns = -(-rows // self.threads)
        if elements < 1 << 14 or 10 * turns * self.threads < 11 * rows:
            return False
        if rows < FEW_ROWS_OF_CPU:
            return length <= MOST_IN_ORDER and (rows > 1 or elements <= 1 << 18)
        return rows <= 4 * FEW_ROWS_OF_CPU and length >= 1 << 13


STRIPES_OF_CPU = 32


def cpu_limits(
    library_types: frozenset[DType] = HALF_TYPES,
    *,
    threads: int | None = None,
    few_half_rows: int = FEW_HALF_ROWS,
    has_pairs: bool = False,
) -> Limits:
    """The limits of a CPU whose library has instructions for products of these half types, which
    kernels of more than `few_half_rows` rows have not: for bfloat16 they are four times as fast. In
    single precision kernels with AVX-512 are at least 1.4 times as fast as the library for each of
    the shapes that `benchmarks.products` measures, and twice for most. `threads`: how many there
    are, where that may decide, and kernels may be chosen by measuring. `has_pairs`: kernels
    multiply pairs of bfloat16 by an instruction, too.
    """

    def multiplies(product: ProductSizes) -> bool:
        if product.dtype in library_types:
            if has_pairs and product.lies_in_pairs and multiplies_pairs(product):
                return True
            return product.rows <= few_half_rows
        return product.dtype is DType.F32 or product.dtype in HALF_TYPES

    limits = Limits(
        walks_rows=True,
        multiplies=multiplies,
        attends=attends,
        chains=True,
        stripes=STRIPES_OF_CPU,
    )
    if threads is None:
        return limits
    rows = RowsOnThreads(threads)
    return replace(limits, leaves_whole=rows.are_whole, leaves_open=rows.are_open)


CPU = cpu_limits()

PLAIN = Limits()
"""The limits of kernels that multiply no matrices: of other languages, and without vectors."""

LimitsOf = Callable[[str], Limits]
"""The limits of a device, by its name."""


def limits_of_cpu(device: str) -> Limits:
    """A CPU's, whatever the device."""
    return CPU
