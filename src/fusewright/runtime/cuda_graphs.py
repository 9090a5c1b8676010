"""CUDA graphs: compiled code is recorded once and then launched as a whole, at the cost of one
launch.

first call                  second call                         later calls
----------                  -----------                         -----------
run, on a side stream       record, on the inputs' static       copy inputs in, launch the
                            memory; launch the recording        recording, copy results out

A recording reads and writes fixed addresses:

- An input that lay at the same address in both first calls, such as a parameter, is read and
  written where it is; each call compares its address. Other inputs have static memory, into which
  each call copies them, and out of which it copies what the graph has written to them. It is as
  far from a multiple of `ALIGNMENT` as the input was when the call ran, so that a recording takes
  no kernel that was not loaded then.
- Results are copied to memory of their own. What a forward graph keeps for its backward is not: it
  is handed out as it lies in the recording's memory, and while somebody holds it, no recording runs
  that may overwrite it. Such a call, and each one that a recording does not fit, runs without it.
- Recordings that are launched on one stream share a pool of memory. One that was made later may use
  what an earlier one used in between, but nothing that was still held when it was made.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import torch

from fusewright import torch_compat
from fusewright.context import COLLECTOR_PAUSE
from fusewright.logs import warn
from fusewright.native._extension import first_elsewhere
from fusewright.records import record
from fusewright.runtime.layouts import length_of

Call = Callable[[list[Any]], tuple[Any, ...]]
"""Takes one list of inputs, which it clears; gives a flat tuple."""

RECORDING_LIMIT: Final = 8
"""For how many sizes and streams one graph is recorded; and how often again, since inputs move,
before it is no longer recorded at all.
"""

ALIGNMENT: Final = 64
"""Bytes. Kernels, and libraries of some, are chosen by whether pointers are multiples of so many,
or of fewer.
"""

PATIENCE: Final = 2
"""How many calls in a row have to find an input elsewhere until it counts as one that moves."""


class Recording(Protocol):
    """Work of a device that is launched again by `replay`, on the current stream."""

    def replay(self) -> None:
        """Launch the work."""


class Device(Protocol):
    """The operations that recording asks of a device; tests have one without a GPU."""

    def warm_up(self, call: Call, inputs: list[Any]) -> tuple[Any, ...]:
        """Run `call` on the side stream, in order with the current stream."""

    def record(self, call: Call, inputs: list[Any]) -> tuple[Recording, tuple[Any, ...]]:
        """Record `call` on static inputs without running it, and what it will have computed."""


_RECORDING: Final = threading.RLock()
"""Held while a recording is made: the generators of random numbers know of one at a time."""

_BROKEN: Final[list[torch.cuda.CUDAGraph]] = []
"""Recordings that the driver has given up: the allocator of pinned memory keeps their addresses."""


class CudaDevice:
    """A GPU, with the side stream and the memory that recordings are made in."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream = torch.cuda.Stream(index)
        self._memory = torch.cuda.graph_pool_handle()

    def warm_up(self, call: Call, inputs: list[Any]) -> tuple[Any, ...]:
        """Run `call` on the side stream, between what the current stream did and will do."""
        current = torch.cuda.current_stream(self._index)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                outputs = call(inputs)
        finally:  # What was written to inputs before an exception is there for who catches it.
            current.wait_stream(self._stream)
        for output in outputs:
            if isinstance(output, torch.Tensor):
                output.record_stream(current)
        return outputs

    def record(self, call: Call, inputs: list[Any]) -> tuple[Recording, tuple[Any, ...]]:
        """Record `call`. Whatever it raises is raised, also that an operator may not be recorded;
        torch can record again then, and draw random numbers.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._index))
        # Garbage that is collected meanwhile might destroy what must not be while a GPU records.
        with _RECORDING, COLLECTOR_PAUSE, torch.cuda.stream(self._stream):
            graph = torch.cuda.CUDAGraph()
            try:
                graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
                outputs = call(inputs)
                graph.capture_end()
            except BaseException:
                self._abandon(graph)
                raise
        return graph, outputs

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording in which something was raised.

        The end of one that the driver has given up is an error itself, behind which torch 2.11
        takes it for under way: it would record nothing in the same pool of memory any more, free no
        memory where memory runs out, and draw no random numbers.
        """
        try:
            graph.capture_end()
        except RuntimeError:
            graph.reset()
        else:
            return
        if torch_compat.cuda.stop_recording(self._index, self._memory):
            _BROKEN.append(graph)
        self._memory = torch.cuda.graph_pool_handle()  # Pinned memory still counts the other one.
        with suppress(RuntimeError):  # The first error is to be told.
            self._record_nothing()

    def _record_nothing(self) -> None:
        """Make a recording that ends well, which takes the generators of random numbers out of one
        that did not.
        """
        memory = torch.zeros(1, device=torch.device("cuda", self._index))
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        memory.zero_()  # Torch warns of an empty one.
        graph.capture_end()


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


@record(kw_only=True)
class ReplayFacts:
    """Facts about a graph that are known when it is compiled."""

    written: frozenset[int] = frozenset()
    """Numbers of the inputs in whose memory the graph writes."""

    kept_from: int | None = None
    """From which output on they are kept for a backward; None: no output is."""

    passing: int = 0
    """How many outputs, the first, are read before anything else runs: new values of inputs."""

    warm_ups: int = 1
    """How many calls come before the one that is recorded. A backward half takes one more: what its
    forward half keeps lies in the same place from when that is recorded.
    """

    sizes_vary: bool = False
    """Whether one graph serves for inputs of several sizes."""


class RecordingPool:
    """The recordings that are launched on one stream."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lock = threading.RLock()
        """Held from the comparison of addresses until results are copied out."""

        self._order: list[_Recorded] = []

    def add(self, recorded: _Recorded) -> None:
        """Note the latest recording, and forget those that are dropped and of which nobody holds
        anything.
        """
        self._order = [
            recording
            for recording in self._order
            if not recording.is_dropped or recording.is_held()
        ]
        self._order.append(recorded)

    def is_overwritten_by(self, recorded: _Recorded) -> bool:
        """Whether somebody holds what `recorded` may overwrite: its own results, or those of what
        was recorded later, in memory that it had given back.
        """
        place = self._order.index(recorded)
        return any(later.is_held() for later in self._order[place:])


_POOLS: dict[tuple[int, int], RecordingPool] = {}
_MAKING_POOLS = threading.Lock()


def current_pool(index: int) -> RecordingPool | None:
    """The pool for the current stream of a GPU; None while the program itself records it."""
    if torch.cuda.is_current_stream_capturing():
        return None
    key = (index, torch_compat.cuda.stream(index))
    pool = _POOLS.get(key)
    if pool is None:
        with _MAKING_POOLS:
            pool = _POOLS.setdefault(key, RecordingPool(CudaDevice(index)))
    return pool


class _Recorded:
    """One recording with its static memory."""

    def __init__(
        self,
        call: Call,
        inputs: list[Any],
        moving: frozenset[int],
        ran: Sequence[int],
        facts: ReplayFacts,
        device: Device,
    ) -> None:
        """`ran`: where the inputs lay when the call ran unrecorded."""
        self.moving = tuple(sorted(moving))
        self.spans = [TensorSpan.of(inputs[number]) for number in self.moving]
        static = list(inputs)
        for number, span in zip(self.moving, self.spans, strict=True):
            static[number] = span.like(inputs[number], ran[number])
        pairs = zip(self.moving, self.spans, strict=True)
        self.memory = Copies([span.whole(static[number]) for number, span in pairs])
        self._copy_in(inputs)
        addresses = _addresses(inputs)
        for number in moving:
            addresses[number] = 0
        self.addresses = addresses.tobytes()
        self.written = [place for place, n in enumerate(self.moving) if n in facts.written]
        numbers = {id(tensor): n for n, tensor in enumerate(static) if tensor is not None}
        self.recording, outputs = device.record(call, list(static))
        self.outputs = list(outputs)
        self.from_input = {
            place: numbers[id(output)]
            for place, output in enumerate(outputs)
            if isinstance(output, torch.Tensor) and id(output) in numbers
        }
        self._sort_outputs(facts)
        self._counts = torch_compat.cuda.storage_use_counts(self.kept)
        self._may_be_held = False
        self.is_dropped = False
        """Whether it is not replayed any more."""

    def _sort_outputs(self, facts: ReplayFacts) -> None:
        """Tell what is copied out, and what is handed out as it lies."""
        self.copied: list[tuple[int, TensorSpan]] = []
        self.shared: list[int] = []
        kept_from = len(self.outputs) if facts.kept_from is None else facts.kept_from
        for place, output in enumerate(self.outputs):
            if not isinstance(output, torch.Tensor) or place in self.from_input:
                continue
            if place >= kept_from or place < facts.passing or _holds_memory(output):
                self.shared.append(place)
            else:
                self.copied.append((place, TensorSpan.of(output)))
        self.results = Copies([span.whole(self.outputs[place]) for place, span in self.copied])
        self.kept = [self.outputs[place] for place in self.shared if place >= facts.passing]

    def fits(self, inputs: list[Any]) -> bool:
        """Whether the inputs are where they were recorded."""
        return first_elsewhere(inputs, self.addresses) < 0

    def moved(self, inputs: list[Any]) -> list[int]:
        """Numbers of the inputs that are not."""
        recorded = array("q", self.addresses)
        pairs = zip(_addresses(inputs), recorded, strict=True)
        return [number for number, (now, then) in enumerate(pairs) if then and now != then]

    def is_held(self) -> bool:
        """Whether somebody holds what an earlier replay handed out."""
        if self._may_be_held:
            self._may_be_held = torch_compat.cuda.storage_use_counts(self.kept) != self._counts
        return self._may_be_held

    def _copy_in(self, inputs: list[Any]) -> list[torch.Tensor]:
        """Copy the inputs that move into their static memory; gives the memory that they lie in."""
        places = zip(self.moving, self.spans, strict=True)
        moving = [span.whole(inputs[number]) for number, span in places]
        self.memory.write(moving)
        return moving

    def replay(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run the recording on `inputs`, which are where they were."""
        moving = self._copy_in(inputs)
        self.recording.replay()
        for place in self.written:
            moving[place].copy_(self.memory.static[place])
        outputs = list(self.outputs)
        for place, number in self.from_input.items():
            outputs[place] = inputs[number]
        for place in self.shared:
            outputs[place] = outputs[place].detach()
        targets = []
        for place, span in self.copied:
            outputs[place] = copy = span.like(self.outputs[place])
            targets.append(span.whole(copy))
        self.results.read(targets)
        self._may_be_held = bool(self.kept)
        return tuple(outputs)


class Replayer:
    """A compiled graph that is recorded at its second call, and replayed from then on.

    `current_pool` gives where recordings for the current stream are kept; None: not now.
    """

    def __init__(
        self, call: Call, facts: ReplayFacts, current_pool: Callable[[], RecordingPool | None]
    ) -> None:
        self.why_not = ""
        """Why the graph is no longer recorded; empty: it is."""

        self.replays = 0
        """How many calls were replays."""

        self._call = call
        self._facts = facts
        self._current_pool = current_pool
        self._seen: dict[Any, tuple[int, array[int]]] = {}
        """By kind of call: how many warm-ups there were, and addresses in the latest call that ran
        unrecorded.
        """

        self._threads: set[int] = set()
        """Those in which the call ran. Libraries make what a thread needs at its first call, which
        may not be while it records.
        """

        self._recorded: dict[Any, _Recorded] = {}
        self._moving: frozenset[int] = frozenset()
        """Numbers of the inputs that were seen to move."""

        self._misses = 0
        self._recordings = 0

    def __del__(self) -> None:
        for kind in list(self._recorded):
            self._drop(kind)

    def _drop(self, kind: Any) -> None:
        self._recorded.pop(kind).is_dropped = True

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        pool = None if self.why_not else self._current_pool()
        if pool is None:
            return self._call(inputs)
        kind = (pool, self._sizes(inputs)) if self._facts.sizes_vary else pool
        with pool.lock, torch.no_grad():
            recorded = self._recorded.get(kind)
            if recorded is None:
                return self._begin(kind, pool, inputs)
            if not recorded.fits(inputs):
                return self._elsewhere(kind, pool, inputs)
            self._misses = 0
            if pool.is_overwritten_by(recorded):
                return self._call(inputs)
            return self._replay(recorded, inputs)

    def _note_run(self, kind: Any, warm_ups: int, addresses: array[int]) -> None:
        """A call runs unrecorded, in this thread."""
        self._seen[kind] = warm_ups, addresses
        self._threads.add(threading.get_ident())

    def _has_to_warm_up(self) -> bool:
        """Whether the call ran in other threads only; in many of them, a next one is as new."""
        is_new = threading.get_ident() not in self._threads
        return is_new and len(self._threads) < RECORDING_LIMIT

    def _replay(self, recorded: _Recorded, inputs: list[Any]) -> tuple[Any, ...]:
        outputs = recorded.replay(inputs)
        inputs.clear()
        self.replays += 1
        return outputs

    def _sizes(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            [
                (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
                for value in inputs
            ]
        )

    def _begin(self, kind: Any, pool: RecordingPool, inputs: list[Any]) -> tuple[Any, ...]:
        """A call of a kind that was not recorded yet."""
        addresses = _addresses(inputs)
        count, seen = self._seen.get(kind, (0, addresses))
        if count < self._facts.warm_ups or self._has_to_warm_up():
            if len(self._seen) >= RECORDING_LIMIT and not count:
                return self._call(inputs)
            self._note_run(kind, count + 1, addresses)
            return pool.device.warm_up(self._call, inputs)
        pairs = zip(seen, addresses, strict=True)
        moved = [number for number, (then, now) in enumerate(pairs) if then != now]
        return self._record(kind, pool, moved, inputs)

    def _elsewhere(self, kind: Any, pool: RecordingPool, inputs: list[Any]) -> tuple[Any, ...]:
        """A call with inputs that lie elsewhere than recorded; after some in a row they count as
        such that move, and a recording is made that copies them.
        """
        recorded = self._recorded[kind]
        self._misses += 1
        if self._misses < PATIENCE or pool.is_overwritten_by(recorded) or self._has_to_warm_up():
            self._note_run(kind, self._facts.warm_ups, _addresses(inputs))
            return self._call(inputs)
        self._misses = 0
        self._drop(kind)
        return self._record(kind, pool, recorded.moved(inputs), inputs)

    def _record(
        self, kind: Any, pool: RecordingPool, moved: Iterable[int], inputs: list[Any]
    ) -> tuple[Any, ...]:
        self._moving |= frozenset(moved)
        self._recordings += 1
        if self._recordings > 2 * RECORDING_LIMIT:
            self._give_up(f"it was recorded {self._recordings - 1} times")
            return self._call(inputs)
        try:
            with torch.inference_mode(False), torch.no_grad():
                moving, (_, ran) = self._moving, self._seen[kind]
                recorded = _Recorded(self._call, inputs, moving, ran, self._facts, pool.device)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            self._give_up(f"{type(error).__name__}: {reason}")
            return self._call(inputs)
        self._recorded[kind] = recorded
        pool.add(recorded)
        return self._replay(recorded, inputs)

    def _give_up(self, why: str) -> None:
        self.why_not = why
        for kind in list(self._recorded):
            self._drop(kind)
        warn(f"a graph is no longer replayed as a CUDA graph, and runs as it was compiled: {why}")


def _addresses(inputs: Sequence[Any]) -> array[int]:
    """Where the memory of each input begins; 0 for one that is no tensor, or has no memory."""
    return array("q", [x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in inputs])


def _holds_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor without elements stands for memory."""
    return not tensor.numel() and tensor.untyped_storage().nbytes() > 0
