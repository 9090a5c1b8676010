"""Random arguments for a kernel that is tried by itself: of its sizes, strides and types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import compress

import torch

from fusewright.ir.canonical import CanonicalNames
from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.ir.index import Index
from fusewright.ir.program import Layout
from fusewright.ir.value import Cast, Indirect, Load, Value, postorder
from fusewright.kernels.analysis import stage_values

SEED = 0x7E57
"""Of the random numbers: trials of two processes see the same."""

MOST_INDICES = 2
"""Integers are below this number, zeros and ones, unless they are indices."""


class CannotTry(Exception):
    """No arguments can be made up for a kernel; says why."""


class RandomArguments:
    """The arguments of a group's kernels. Nothing is allocated until `tensors` is called."""

    def __init__(
        self,
        group: Group,
        names: CanonicalNames,
        hints: Mapping[str, int | float],
        inputs: Collection[str] = (),
    ) -> None:
        """`hints`: what symbolic sizes are. `inputs`: buffers that are inputs of the program; its
        weights are among them. CannotTry: indices are computed from what the group reads, a size is
        found out while the program runs, or there is nothing to do.
        """
        self.device = torch.device(group.device)
        self._group = group
        self._hints = hints
        self._buffers = names.buffers
        self._layouts = {buffer.name: buffer.layout for buffer in (*group.reads, *group.writes)}
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise CannotTry("a CUDA graph is being recorded")
        limits = index_limits(group)
        try:
            self.sizes = {canonical.name: hints[own.name] for canonical, own in names.sizes}
            """The sizes that kernels take, by canonical name."""

            self.spans = tuple(span_of(self._layouts[name], hints) for name in names.buffers)
            """The elements of each buffer, in the order of the arguments."""

            self._bounds = {
                name: min(size.evaluate(hints) for size in several)
                for name, several in limits.items()
            }
        except KeyError:
            raise CannotTry("a size is not known before the program runs") from None
        written = {buffer.name for buffer in group.writes}
        self.are_inputs = tuple(
            name in inputs and name not in written and not self._is_number(name)
            for name in names.buffers
        )
        """By argument: whether each set has its own."""

        spans = zip(names.buffers, self.spans, strict=True)
        if any(name in written and not span for name, span in spans):
            raise CannotTry("it has nothing to do")
        if any(bound < 1 for bound in self._bounds.values()):
            raise CannotTry("it reads from what has no elements")

    @property
    def bytes(self) -> int:
        """The size of all arguments."""
        return sum(self._bytes_of_each())

    def input_bytes(self) -> int:
        """The size of those that are inputs of the program."""
        return sum(compress(self._bytes_of_each(), self.are_inputs))

    def sets(self, count: int) -> list[list[torch.Tensor]]:
        """The arguments, and further ones that differ in the tensors that are inputs of the
        program.
        """
        first = self.tensors()
        others = [
            [t.clone() if own else t for t, own in zip(first, self.are_inputs, strict=True)]
            for _ in range(count - 1)
        ]
        return [first, *others]

    def _bytes_of_each(self) -> list[int]:
        layouts = (self._layouts[name] for name in self._buffers)
        pairs = zip(layouts, self.spans, strict=True)
        return [layout.dtype.bytes * span for layout, span in pairs]

    def _is_number(self, name: str) -> bool:
        """Whether kernels are given the buffer's one number by value."""
        return self._layouts[name].is_number_for(self._group.device)

    def tensors(self) -> list[torch.Tensor]:
        """The memory that each buffer spans, without its shape, in the order of the arguments."""
        generators: dict[str, torch.Generator] = {}
        tensors = []
        for name in self._buffers:
            layout = self._layouts[name]
            if layout.device not in generators:
                generators[layout.device] = generator_on(layout.device)
            bound = self._bounds.get(name, MOST_INDICES)
            tensor = random_memory(layout, self._hints, bound, generators[layout.device])
            tensors.append(tensor.reshape(()) if self._is_number(name) else tensor)
        return tensors


def generator_on(device: str) -> torch.Generator:
    """A generator of its own, so that a program draws what it would have drawn."""
    return torch.Generator(device).manual_seed(SEED)


def span_of(layout: Layout, sizes: Mapping[str, int | float]) -> int:
    """The elements that a layout spans. KeyError: a size is not known."""
    return max(0, layout.span.evaluate(sizes))


def random_memory(
    layout: Layout, sizes: Mapping[str, int | float], bound: int, generator: torch.Generator
) -> torch.Tensor:
    """As many elements as a layout spans: normal numbers, integers below `bound`."""
    dtype: torch.dtype = getattr(torch, layout.dtype.torch_name)
    tensor = torch.empty(span_of(layout, sizes), dtype=dtype, device=layout.device)
    if layout.dtype.is_float:
        return tensor.normal_(generator=generator)
    most = 2 if layout.dtype is DType.BOOL else min(bound, 1 << (layout.dtype.bits - 1))
    return tensor.random_(0, most, generator=generator)


def index_limits(group: Group) -> dict[str, list[Index]]:
    """The sizes below which the integers in a buffer have to be, by buffer, since they are indices.
    CannotTry: an index is computed from what the group reads, so that random content may lead
    anywhere.
    """
    memory = {buffer.name for buffer in group.reads} - {buffer.name for buffer in group.writes}
    limits: dict[str, list[Index]] = {}
    for indirect in _indirects(group):
        loads = [node for node in postorder((indirect.value,)) if isinstance(node, Load)]
        if not loads:
            continue  # It is a number that follows from the loops.
        load = _load_behind(indirect.value)
        if load is None or load.buffer not in memory or not load.dtype.is_integer:
            raise CannotTry("it computes indices from what it reads")
        limits.setdefault(load.buffer, []).append(indirect.size)
    return limits


def _indirects(group: Group) -> Iterator[Indirect]:
    for stage in group.stages:
        yield from (value for value in stage_values(stage) if isinstance(value, Indirect))


def _load_behind(value: Value) -> Load | None:
    """The load that a value is, or is a cast of: wherever it loads from, all is in range there."""
    while isinstance(value, Cast):
        value = value.argument
    return value if isinstance(value, Load) else None
