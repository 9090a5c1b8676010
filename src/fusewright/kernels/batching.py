"""One kernel in place of several launches, where they differ in their tensors and sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.canonical import hash_of
from fusewright.ir.dtype import DType
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import integer
from fusewright.ir.kernel import BatchedKernel, Kernel, KernelArgument, Launch, TritonFacts
from fusewright.ir.lines import CallKernel, DefineKernel, Line
from fusewright.ir.parse import parse_commented_loops
from fusewright.ir.text import commented_loops, group_rows
from fusewright.kernels import KernelSet
from fusewright.kernels.triton import batched
from fusewright.kernels.triton.batched import MOST_ELEMENTS, of_any_size
from fusewright.records import replace

MOST_VALUES = 8000
"""Values in a kernel's table: a number for each launch that it does the work of, and all of their
arguments. Two launches write them.
"""

MOST_PARAMETERS = 64
"""Parameters of a kernel without a table: a size for each launch, and all of their arguments."""

TABLE = KernelArgument(name="table", dtype=DType.I64, is_written=True)
"""Memory for the table, the last argument of a batch. A kernel whose parameters are the addresses
of 150 launches of three tensors keeps them in registers, and takes 24 times as long as its memory
needs (an H100, Triton 3.6).
"""


def with_batches(kernels: KernelSet, schedule: Schedule, lines: Sequence[Line]) -> KernelSet:
    """The kernels with those of batches, and as the launch of each group in a batch the batch's;
    without kernels that only groups in batches had.
    """
    known = {kernel.name for kernel in kernels.definitions}
    defined = {line.kernel.name: line.kernel for line in lines if isinstance(line, DefineKernel)}
    new = {name: kernel for name, kernel in defined.items() if name not in known}
    if not new:
        return kernels
    writers: dict[str, Launch] = {}
    for line in lines:
        if isinstance(line, CallKernel) and line.launch.kernel in new:
            arguments = new[line.launch.kernel].arguments
            for name, argument in zip(line.launch.buffers, arguments, strict=True):
                if argument.is_written:
                    writers[name] = line.launch
    launches = dict(kernels.launches)
    gone: set[str] = set()
    for position, launch in kernels.launches.items():
        work = schedule.works[position]
        batch = writers.get(work.writes[0].name) if isinstance(work, Group) else None
        if batch is not None and isinstance(launch, Launch):
            launches[position] = batch
            gone.add(launch.kernel)
    gone -= defined.keys()
    kept = tuple(kernel for kernel in kernels.definitions if kernel.name not in gone)
    return replace(kernels, definitions=(*kept, *new.values()), launches=launches)


class Batcher:
    """Tells which kernels can be batched, and writes kernels for batches of them."""

    def __init__(self) -> None:
        self._structures: dict[str, str | None] = {}
        """By key of a kernel."""

        self._groups: dict[str, Group] = {}
        """The groups that kernels compute, by the same."""

    def _group(self, kernel: Kernel) -> Group:
        if kernel.key not in self._groups:
            self._groups[kernel.key] = parse_commented_loops(kernel.source)
        return self._groups[kernel.key]

    def structure(self, kernel: Kernel) -> str | None:
        """Kernels of equal structure may be batched. None: no kernel may with this one."""
        if kernel.key not in self._structures:
            self._structures[kernel.key] = self._structure(kernel)
        return self._structures[kernel.key]

    def _structure(self, kernel: Kernel) -> str | None:
        facts = kernel.facts
        if not isinstance(facts, TritonFacts) or facts.checks_bounds or kernel.sizes:
            return None
        if [name for name, _ in facts.blocks] != ["XBLOCK"]:
            return None
        group = self._group(kernel)
        extents = [loop.extent for loop in group.outer]
        if not all(extent.is_constant and 0 < int(extent) <= MOST_ELEMENTS for extent in extents):
            return None
        general = of_any_size(group)
        return None if general is None else "\n".join(group_rows(general))

    def most(self, arguments: int) -> int:
        """How many launches of so many arguments one kernel can do the work of."""
        return MOST_VALUES // (arguments + 1) - 1

    def is_worth(self, launches: int, arguments: int) -> bool:
        """Whether one kernel takes fewer launches than so many: a table takes one, too."""
        return launches > 1 + has_table(launches, arguments)

    def batch(self, kernels: Sequence[Kernel], places: Sequence[int]) -> BatchedKernel:
        """The kernel for launches of these kernels, whose structures are equal, in order. Its
        arguments are those of the first, then those of the second, and memory for its table, or
        the launches' sizes.
        `places`: for each argument of a launch the place of the first that is the same buffer; it
        is an argument once.
        """
        groups = [self._group(kernel) for kernel in kernels]
        sizes = [int(group.outer[0].extent) for group in groups]
        first = kernels[0]
        assert isinstance(first.facts, TritonFacts)
        own, names = _merged(first.arguments, places)
        general = of_any_size(groups[0], names=names)
        assert general is not None
        arguments = [
            replace(argument, name=f"{argument.name}_{place}")
            for place in range(len(sizes))
            for argument in own
        ]
        in_table = has_table(len(sizes), len(own))
        written = batched.write_batch(general, own, sizes, has_table=in_table)
        source = commented_loops(general) + written.source
        facts = written.facts
        if in_table:
            kinds = first.facts.types
            types = [kinds[place] for place in dict.fromkeys(places)] * len(sizes)
            facts = replace(facts, types=(*types, "*i64"), launches=tuple(sizes))
        key = hash_of(first.language, source, facts.identity)
        kernel = Kernel(
            name=f"{first.name.rpartition('_')[0]}_batch_{key[:8]}",
            key=key,
            language=first.language,
            source=source,
            arguments=(*arguments, TABLE) if in_table else tuple(arguments),
            sizes=() if in_table else tuple(f"s0_{place}" for place in range(len(sizes))),
            facts=facts,
        )
        if in_table:
            return BatchedKernel(kernel, written.programs, values=len(sizes) + len(arguments))
        return BatchedKernel(kernel, written.programs, sizes=tuple(map(integer, sizes)))


def has_table(launches: int, arguments: int) -> bool:
    """Whether the arguments of so many launches, and their sizes, are too many for parameters."""
    return launches * (arguments + 1) > MOST_PARAMETERS


def _merged(
    arguments: Sequence[KernelArgument], places: Sequence[int]
) -> tuple[list[KernelArgument], dict[str, str]]:
    """The arguments of a launch, each buffer once, and their new names: `inout0` for what is read
    as one argument and written as another.
    """
    own: dict[int, KernelArgument] = {}
    for argument, place in zip(arguments, places, strict=True):
        known = own.get(place)
        is_shared = known is not None and known.is_written != argument.is_written
        if known is None or (is_shared and not known.is_in_place):
            number = sum(other.is_in_place for other in own.values())
            name = f"inout{number}" if is_shared else argument.name
            is_written = is_shared or argument.is_written
            own[place] = replace(argument, name=name, is_written=is_written)
    names = {a.name: own[place].name for a, place in zip(arguments, places, strict=True)}
    return list(own.values()), names
