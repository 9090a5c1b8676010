"""Triton source for fused groups, as one would write it by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from fusewright.ir.group import Group
from fusewright.ir.index import Symbol
from fusewright.ir.kernel import KernelArgument
from fusewright.ir.limits import Limits
from fusewright.ir.text import commented_loops
from fusewright.kernels.analysis import SizeHints
from fusewright.kernels.language import Candidate, Implementation, Work
from fusewright.kernels.triton.axis_form import CannotRecompute, holds_all_rows
from fusewright.kernels.triton.configurations import configuration_of, configurations
from fusewright.kernels.triton.emit import KernelWriter, TritonKernel, write_kernel
from fusewright.kernels.triton.products import (
    PRODUCT_FORMS,
    PRODUCT_TYPES,
    TritonProductWriter,
    form_by_rule,
    multiplies_by_rule,
    product_of,
    wants_aligned_rows,
)
from fusewright.kernels.triton.tiling import (
    ACROSS_SHARE,
    HELD_ACROSS,
    MOST_ARGUMENTS,
    PERSISTENT_LIMIT,
    Configuration,
    Tiling,
    tile,
)
from fusewright.kernels.triton.ways import is_open, ways_to_reduce
from fusewright.records import replace

__all__ = [
    "LIMITS",
    "PRODUCT_FORMS",
    "PRODUCT_TYPES",
    "Configuration",
    "Tiling",
    "TritonKernel",
    "candidates",
    "configuration_of",
    "tile",
    "ways",
    "write",
    "write_work",
]


def holds_rows(group: Group) -> bool:
    """Whether the group's kernel has its rows in registers wherever they are read."""
    return holds_all_rows(group, tile(group))


LIMITS = Limits(
    parallel_points=256,
    reductions=512,
    longest_tile=1 << 15,
    lanes=64,
    across_share=ACROSS_SHARE,
    chunks=1024,
    shares_chunks=True,
    stripes=512,
    shortest_chunk=2048,
    cheap_cost=32,
    operations_a_byte=10,
    row_bytes=1 << 20,
    held_row=PERSISTENT_LIMIT,
    held_across=HELD_ACROSS,
    multiplies=multiplies_by_rule,
    product_form=form_by_rule,
    wants_aligned_rows=wants_aligned_rows,
    adds_atomically=True,
    most_buffers=MOST_ARGUMENTS,
    batches_launches=True,
    does_parts_at_once=True,
    loads_first=True,
    mirrors_rows=True,
    holds_rows=holds_rows,
)
"""Limits of a GPU with some 130 multiprocessors: a program is a tile, and several run on each at a
time. Rows that are not held are computed again, so that they may be long. For each byte that it
reads it does some twenty operations.
"""


def limits(*, has_choices: bool) -> Limits:
    """The limits of a GPU; `has_choices`: on which kernels may be chosen by measuring."""
    return replace(LIMITS, leaves_whole=is_open, leaves_open=is_open) if has_choices else LIMITS


def write(
    group: Group,
    arguments: Iterable[KernelArgument],
    sizes: tuple[Symbol, ...],
    configuration: Configuration | None = None,
) -> TritonKernel:
    """The kernel of a group under canonical names, by default in the configuration that is chosen
    by rule. Raises `CannotRecompute` for a row that neither fits nor can be computed again.
    """
    configuration = configuration or configuration_of(group)
    product = product_of(group)
    if product is None:
        writer = KernelWriter(group, configuration.tiling)
    else:
        writer = TritonProductWriter(group, product, configuration)
    return write_kernel(writer, arguments, sizes, configuration)


def write_work(group: Group, tensors: Sequence[str], sizes: Sequence[Symbol]) -> tuple[str, Work]:
    """The source of a group under canonical names, whose arguments are `tensors`, then `sizes` and
    block sizes; and its work, in programs. Above it the loops stand as comments.
    """
    return _written(group, tensors, sizes, configuration_of(group))


def ways(group: Group, hints: SizeHints, limits: Limits) -> list[Implementation]:
    """The ways to do the work of a group among which measuring chooses, that of `write_work`
    first; one alone where it is clear.
    """
    return ways_to_reduce(group, hints, limits, _written)


def candidates(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], rounds: bool = False
) -> list[Candidate]:
    """The ways to write a group that tuning tries, that of `write_work` first. `rounds`: factors of
    products may be rounded to TF32.
    """
    tried = []
    for configuration in configurations(group, rounds):
        with suppress(CannotRecompute):
            written = _written(group, tensors, sizes, configuration)
            tried.append(Candidate(configuration.words, *written))
    return tried


def _written(
    group: Group, tensors: Sequence[str], sizes: Sequence[Symbol], configuration: Configuration
) -> tuple[str, Work]:
    """The source of a group in a configuration, and its work."""
    written = {buffer.name for buffer in group.writes}
    types = {b.name: b.layout.dtype for b in (*group.reads, *group.writes)}
    arguments = [
        KernelArgument(name=name, dtype=types[name], is_written=name in written) for name in tensors
    ]
    kernel = write(group, arguments, tuple(sizes), configuration)
    return commented_loops(group) + kernel.source, Work(kernel.programs, kernel.facts)
