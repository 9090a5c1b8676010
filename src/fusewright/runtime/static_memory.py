"""Memory at fixed addresses that a recording reads and writes: of inputs, and of results.

The memory of results is handed out as it lies, so that nothing is copied, and belongs to whoever
holds a result as well. Before a recording writes it again, one comparison in C says whether
somebody still does:

    held by                            tensors and storage objects in that memory
    -------                            ------------------------------------------
    the recording alone                as many as when it was made: it may be written
    a result, a view of one,           more
    what autograd saved, a storage
"""

from __future__ import annotations

import functools
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

from fusewright import torch_compat
from fusewright.native._extension import first_elsewhere, holders_of, use_of
from fusewright.records import record
from fusewright.runtime.layouts import length_of

ALIGNMENT: Final = 64
"""Bytes. Kernels, and libraries of some, are chosen by whether pointers are multiples of so many,
or of fewer.
"""


@record
class TensorSpan:
    """How a tensor lies, and how to copy the memory from its first to its last element."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    length: int
    """Elements from the first to the last, gaps included."""

    is_dense: bool
    """Whether each of them belongs to one index: then the tensor is copied as it is."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpan:
        """The span of a strided tensor."""
        steps = sorted(zip(tensor.stride(), tensor.shape, strict=True))
        filled, is_dense = 1, bool(tensor.numel())
        for stride, size in steps:
            is_dense &= size == 1 or stride == filled
            filled *= size
        return cls(tuple(tensor.shape), tensor.stride(), length_of(tensor), is_dense)

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that is copied for `tensor`: itself, or its whole span in one dimension."""
        if self.is_dense:
            return tensor
        return tensor.as_strided((self.length,), (1,), tensor.storage_offset())

    def like(self, tensor: torch.Tensor, address: int = 0) -> torch.Tensor:
        """New memory that lies as `tensor` does, aligned as an address is."""
        first = address % ALIGNMENT // tensor.element_size()
        if self.is_dense and not first:
            return torch.empty_like(tensor)
        memory = torch.empty(first + self.length, dtype=tensor.dtype, device=tensor.device)
        return memory.as_strided(self.size, self.stride, first)


class Copies:
    """Copying many tensors to, or from, places in static memory: one launch for each type."""

    def __init__(self, static: Sequence[torch.Tensor]) -> None:
        self.static = static
        types = [tensor.dtype for tensor in static]
        self._groups = [
            [place for place, other in enumerate(types) if other is dtype]
            for dtype in dict.fromkeys(types)
        ]

    def write(self, sources: Sequence[torch.Tensor]) -> None:
        """Copy `sources` into the static memory."""
        self._copy(self.static, sources)

    def read(self, targets: Sequence[torch.Tensor]) -> None:
        """Copy the static memory into `targets`."""
        self._copy(targets, self.static)

    def _copy(self, targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        for group in self._groups:
            pairs = [targets[place] for place in group], [sources[place] for place in group]
            torch_compat.cuda.foreach_copy_(*pairs)


class StaticInputs:
    """Where a recording reads its inputs, and writes to them: those that move have memory here,
    into which each call copies them; all others are used where they are.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        moving: frozenset[int],
        ran: Sequence[int],
        written: frozenset[int],
    ) -> None:
        """`ran`: where the inputs lay when the call ran unrecorded."""
        self.moving = tuple(sorted(moving))
        self._spans = [TensorSpan.of(inputs[number]) for number in self.moving]
        pairs = list(zip(self.moving, self._spans, strict=True))
        self._tensors = [span.like(inputs[number], ran[number]) for number, span in pairs]
        whole = zip(self._spans, self._tensors, strict=True)
        self._memory = Copies([span.whole(tensor) for span, tensor in whole])
        self._written = [place for place, number in enumerate(self.moving) if number in written]
        addresses = addresses_of(inputs)
        for number in moving:
            addresses[number] = 0
        self._addresses = addresses.tobytes()

    def own_tensors(self) -> tuple[torch.Tensor, ...]:
        """All tensors in the memory of inputs that move."""
        return (*self._tensors, *self._memory.static)

    def instead_of(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs that a recording is made on."""
        static = list(inputs)
        for number, tensor in zip(self.moving, self._tensors, strict=True):
            static[number] = tensor
        return static

    def fit(self, inputs: list[Any]) -> bool:
        """Whether the inputs that do not move are where they were."""
        return first_elsewhere(inputs, self._addresses) < 0

    def moved(self, inputs: Sequence[Any]) -> list[int]:
        """Numbers of those that are not."""
        recorded = array("q", self._addresses)
        pairs = zip(addresses_of(inputs), recorded, strict=True)
        return [number for number, (now, then) in enumerate(pairs) if then and now != then]

    def copy_in(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Copy the inputs that move into their memory; gives the memory that they lie in."""
        places = zip(self.moving, self._spans, strict=True)
        moving = [span.whole(inputs[number]) for number, span in places]
        self._memory.write(moving)
        return moving

    def copy_back(self, moving: Sequence[torch.Tensor]) -> None:
        """Copy what was written to inputs that move into the memory that `copy_in` gave."""
        for place in self._written:
            moving[place].copy_(self._memory.static[place])


FREE: Final = 0
"""Nobody else holds memory of results."""

HELD: Final = 1
"""Somebody does."""

GONE: Final = 2
"""Somebody has given a storage other memory, as `resize_` does: this must not be written again."""


class TensorGeometry(NamedTuple):
    """How a tensor is made, the arguments of `torch.empty_strided`."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorGeometry:
        """How to make another such tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def make(self) -> torch.Tensor:
        """A new tensor; its numbers are not set."""
        size, stride, dtype, device = self
        return torch.empty_strided(size, stride, dtype=dtype, device=device)


class SharedMemory:
    """Memory of a recording that others hold, too."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)
        self._storages = tuple([tensor.untyped_storage() for tensor in self.tensors])
        self._known = b""

    def settle(self, own: Sequence[torch.Tensor]) -> None:
        """Take it that this memory is free where only its storage objects and the recording's `own`
        tensors hold it: not all that do by now, as garbage does until it is collected.
        """
        tensors = (*self.tensors, *own)
        bases = [tensor._base for tensor in tensors if tensor._base is not None]  # held by views
        objects = {id(tensor): tensor for tensor in (*tensors, *bases)}
        counts = Counter(tensor.untyped_storage()._cdata for tensor in objects.values())
        implementations = tuple([storage._cdata for storage in self._storages])
        known = array("q", holders_of(self.tensors, self._storages, implementations))
        if known[2::4].tolist() != torch_compat.cuda.storage_use_counts(self.tensors):
            raise NotImplementedError("this torch counts the holders of memory in another way")
        for place, implementation in enumerate(implementations):
            shares, references = _holders_beside()
            known[4 * place + 2] = counts[implementation] + shares
            known[4 * place + 3] = implementations.count(implementation) + references
        self._known = known.tobytes()

    def use(self) -> int:
        """FREE, HELD or GONE."""
        return use_of(self.tensors, self._storages, self._known)


class ResultMemory(SharedMemory):
    """Memory that a recording writes results to, which are handed out as they lie."""

    def __init__(self, geometries: Iterable[TensorGeometry]) -> None:
        super().__init__([geometry.make() for geometry in geometries])
        self.streams: list[torch.cuda.Stream] = []
        """Streams that may still read it: `record_stream` was called for them."""

        torch_compat.cuda.tell_of_streams(self._storages, self)

    def uses(self, stream: torch.cuda.Stream) -> None:
        """Note a stream."""
        if stream not in self.streams:
            self.streams.append(stream)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in this memory."""
        return any(tensor.untyped_storage() is storage for storage in self._storages)


@functools.cache
def _holders_beside() -> tuple[int, int]:
    """How many share memory beside tensors: its storage object does. And how many references that
    has beside those from tuples.
    """
    tensor = torch.empty(1)
    storages = (tensor.untyped_storage(),)
    words = array("q", holders_of((tensor,), storages, (storages[0]._cdata,)))
    return words[2] - 1, words[3] - 1


def addresses_of(inputs: Sequence[Any]) -> array[int]:
    """Where the memory of each input begins; 0 for one that is no tensor, or has no memory."""
    return array("q", [x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in inputs])
