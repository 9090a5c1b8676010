"""CUDA graphs: compiled code is recorded once and then launched as a whole, at the cost of one
launch.

first call                  second call                         later calls
----------                  -----------                         -----------
run, on a side stream       record, on the inputs' static       copy inputs in, launch the
                            memory; launch the recording        recording, hand results out

A recording reads and writes fixed addresses:

- An input that lay at the same address in both first calls, such as a parameter, is read and
  written where it is; each call compares its address. Other inputs have static memory, into which
  each call copies them, and out of which it copies what the graph has written to them. It is as
  far from a multiple of `ALIGNMENT` as the input was when the call ran, so that a recording takes
  no kernel that was not loaded then.
- Results that the plan allocates itself lie in memory of their own, which is handed out as it lies:
  nothing is copied. Before a recording writes it again, it asks whether somebody still holds some
  of it. As a loop such as `y = f(x)` holds its last result during a call, there are two recordings
  then, which take turns. Where both are held, a third one runs, whose results are copied.
- Other results, and those of forward graphs, lie in the recording's memory and are copied to memory
  of their own. What a forward graph keeps for its backward is not: it is handed out as it lies in
  the recording's memory, and while somebody holds it, no recording runs that may overwrite it. Such
  a call, and each one that a recording does not fit, runs without it.
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
from fusewright.native._extension import names_of
from fusewright.records import record, replace
from fusewright.runtime import cuda_driver
from fusewright.runtime.static_memory import (
    FREE,
    GONE,
    Copies,
    ResultMemory,
    SharedMemory,
    StaticInputs,
    TensorGeometry,
    TensorSpan,
    addresses_of,
)

Call = Callable[[list[Any]], tuple[Any, ...]]
"""Takes one list of inputs, which it clears; gives a flat tuple."""

RECORDING_LIMIT: Final = 8
"""For how many sizes and streams one graph is recorded; and how often again, since inputs move,
before it is no longer recorded at all.
"""

TURNS: Final = 2
"""How many recordings of one kind of call hand out the memory that their results lie in."""

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

    def wait_for(self, streams: Sequence[torch.cuda.Stream]) -> None:
        """Let the current stream go on when those have done what they have to do by now."""


_RECORDING: Final = threading.RLock()
"""Held while a recording is made: the generators of random numbers know of one at a time."""

_BROKEN: Final[list[torch.cuda.CUDAGraph]] = []
"""Recordings that the driver has given up: the allocator of pinned memory keeps their addresses."""


class CudaDevice:
    """A GPU, with the side stream and the memory that recordings are made in. The stream is its
    own: what somebody else launched on it meanwhile would be recorded, and would not run.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream = cuda_driver.own_stream(self, index)
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

    def wait_for(self, streams: Sequence[torch.cuda.Stream]) -> None:
        """Let the current stream wait for others; the host does not wait."""
        current = torch.cuda.current_stream(self._index)
        for stream in streams:
            current.wait_stream(stream)

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

        self.is_replaying = False
        """Whether the thread that has the lock is in the middle of a replay, where an object that
        dies may call anything.
        """

        self._order: list[_Recorded] = []
        self._some_keep = False
        """Whether one of them hands out memory of the pool."""

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
        self._some_keep = any(recording.keeps() for recording in self._order)

    def is_overwritten_by(self, recorded: _Recorded) -> bool:
        """Whether somebody holds what `recorded` may overwrite: its own results, or those of what
        was recorded later, in memory that it had given back.
        """
        if not self._some_keep:
            return False
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
    """One recording with the memory of its results."""

    def __init__(
        self,
        call: Call,
        inputs: list[Any],
        static: StaticInputs,
        memory: ResultMemory | None,
        facts: ReplayFacts,
        device: Device,
    ) -> None:
        """`call` writes results to `memory`, which are handed out."""
        self._device = device
        self._memory = memory
        inputs = static.instead_of(inputs)
        numbers = {id(tensor): n for n, tensor in enumerate(inputs) if tensor is not None}
        self._recording, outputs = device.record(call, list(inputs))
        self._outputs = list(outputs)
        self._from_input = {
            place: numbers[id(output)]
            for place, output in enumerate(outputs)
            if isinstance(output, torch.Tensor) and id(output) in numbers
        }
        fixed = [tensor for n, tensor in enumerate(inputs) if n not in static.moving]
        self._sort_outputs(facts, _storages_of(fixed))
        self._may_be_held = False
        self.is_dropped = False
        """Whether it is not replayed any more."""

        own = [output for output in self._outputs if isinstance(output, torch.Tensor)]
        self._kept.settle((*own, *static.own_tensors()))
        if memory is not None:
            memory.settle(own)

    def _sort_outputs(self, facts: ReplayFacts, fixed: set[int]) -> None:
        """Tell what is copied out, and what is handed out as it lies; `fixed`: storages of inputs
        that are used in place, of which no replay makes anything else.
        """
        copied: list[tuple[int, TensorSpan]] = []
        self._places: list[tuple[int, int]] = []
        """Of what is handed out, with numbers of the tensors."""

        tensors: dict[int, torch.Tensor] = {}
        kept: list[torch.Tensor] = []
        kept_from = len(self._outputs) if facts.kept_from is None else facts.kept_from
        for place, output in enumerate(self._outputs):
            if not isinstance(output, torch.Tensor) or place in self._from_input:
                continue
            is_result = self._memory is not None and self._memory.holds(output)
            is_kept = not is_result and (place >= kept_from or _holds_memory(output))
            if is_result or is_kept or place < facts.passing:
                number = list(tensors).index(id(output)) if id(output) in tensors else len(tensors)
                tensors[id(output)] = output
                self._places.append((place, number))
            else:
                copied.append((place, TensorSpan.of(output)))
            if is_kept and place >= facts.passing and not _storages_of([output]) <= fixed:
                kept.append(output)
        self._copied = copied
        self._results = Copies([span.whole(self._outputs[place]) for place, span in copied])
        self._tensors = tuple(tensors.values())
        self._kept = SharedMemory(kept)

    def hands_out_results(self) -> bool:
        """Whether there are results that are handed out as they lie."""
        return self._memory is not None and any(map(self._memory.holds, self._tensors))

    def use(self) -> int:
        """Whether somebody holds the memory of results."""
        return FREE if self._memory is None else self._memory.use()

    def keeps(self) -> bool:
        """Whether some of what it hands out lies in the pool's memory."""
        return bool(self._kept.tensors)

    def is_held(self) -> bool:
        """Whether somebody holds what an earlier replay handed out of the pool's memory."""
        if self._may_be_held:
            self._may_be_held = self._kept.use() != FREE
        return self._may_be_held

    def drop(self) -> None:
        """Let go of all that only a replay needs: there will be none."""
        self.is_dropped = True
        self._memory = None
        if not self.is_held():  # Else the count of those who hold something includes these.
            self._outputs, self._tensors = [], ()
            self._results = Copies([])

    def replay(self, static: StaticInputs, inputs: list[Any]) -> tuple[Any, ...]:
        """Run the recording on `inputs`, which are where they were."""
        outputs = list(self._outputs)
        for place, number in self._from_input.items():
            outputs[place] = inputs[number]
        self._hand_out(outputs)
        if static.moving or self._copied:
            with torch.no_grad():
                self._replay_with_copies(static, inputs, outputs)
        else:
            self._recording.replay()
        return tuple(outputs)

    def _hand_out(self, outputs: list[Any]) -> None:
        """Give memory to this call, before anything runs: from here on somebody holds it."""
        if self._memory is not None and self._memory.streams:
            streams, self._memory.streams = self._memory.streams, []
            self._device.wait_for(streams)
        tensors = names_of(self._tensors)
        for place, number in self._places:
            outputs[place] = tensors[number]
        self._may_be_held = self.keeps()

    def _replay_with_copies(
        self, static: StaticInputs, inputs: list[Any], outputs: list[Any]
    ) -> None:
        moving = static.copy_in(inputs)
        self._recording.replay()
        static.copy_back(moving)
        targets = []
        for place, span in self._copied:
            outputs[place] = copy = span.like(self._outputs[place])
            targets.append(span.whole(copy))
        self._results.read(targets)


class _Recordings:
    """The recordings of one kind of call, which have the same static inputs."""

    def __init__(self, static: StaticInputs, turns: int) -> None:
        self.static = static
        self._turns = turns
        self._in_turn: list[_Recorded] = []
        self._copying: _Recorded | None = None
        self.gone = 0
        """How many had memory that is gone."""

    def next_hands_out(self) -> bool:
        """Whether the next one that is made is to hand out the memory of its results."""
        return len(self._in_turn) < self._turns

    def add(self, recorded: _Recorded) -> None:
        """Keep one. Where it hands out nothing, none does."""
        if recorded.hands_out_results():
            self._in_turn.append(recorded)
        else:
            self._turns, self._copying = len(self._in_turn), recorded

    def free(self) -> _Recorded | None:
        """One that may write its results. None: another is to be made."""
        for recorded in tuple(self._in_turn):
            use = recorded.use()
            if use == FREE:
                return recorded
            if use == GONE:
                recorded.drop()
                self._in_turn.remove(recorded)
                self.gone += 1
        return None if self.next_hands_out() else self._copying

    def drop(self) -> None:
        """Replay none of them any more."""
        for recorded in self._in_turn:
            recorded.drop()
        if self._copying is not None:
            self._copying.drop()


@record
class _Seen:
    """What is known of a kind of calls before it is recorded."""

    count: int
    """How many warm-ups there were."""

    addresses: array[int]
    """Of the inputs of the latest call that ran unrecorded."""

    results: tuple[TensorGeometry, ...]
    """How memory that the results lie in is allocated."""


class Replayer:
    """A compiled graph that is recorded at its second call, and replayed from then on.

    `call` may have a method `run_into`, as a `CallPlan` has: its results are handed out without
    copies. `current_pool` gives where recordings for the current stream are kept; None: not now.
    """

    def __init__(
        self, call: Call, facts: ReplayFacts, current_pool: Callable[[], RecordingPool | None]
    ) -> None:
        self.why_not = ""
        """Why the graph is no longer recorded; empty: it is."""

        self.replays = 0
        """How many calls were replays."""

        self._call = call
        self._run_into = None if facts.kept_from is not None else getattr(call, "run_into", None)
        """What a forward graph keeps for its backward lies in the pool, which two recordings of it
        would hold twice: it has one, whose results are copied.
        """

        self._facts = facts
        self._current_pool = current_pool
        self._seen: dict[Any, _Seen] = {}
        """By kind of call."""

        self._threads: set[int] = set()
        """Those in which the call ran. Libraries make what a thread needs at its first call, which
        may not be while it records.
        """

        self._recorded: dict[Any, _Recordings] = {}
        self._moving: frozenset[int] = frozenset()
        """Numbers of the inputs that were seen to move."""

        self._misses = 0
        self._begun = 0
        """How often recording began anew."""

    def __del__(self) -> None:
        for kind in list(self._recorded):
            self._drop(kind)

    def _drop(self, kind: Any) -> None:
        self._recorded.pop(kind).drop()

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        pool = None if self.why_not else self._current_pool()
        if pool is None:
            return self._call(inputs)
        kind = (pool, self._sizes(inputs)) if self._facts.sizes_vary else pool
        with pool.lock:
            if pool.is_replaying:
                return self._call(inputs)
            recordings = self._recorded.get(kind)
            if recordings is not None and recordings.static.fit(inputs):
                self._misses = 0
                recorded = recordings.free()
                if recorded is not None and not pool.is_overwritten_by(recorded):
                    return self._replay(pool, recordings.static, recorded, inputs)
            with torch.no_grad():
                return self._without_recording(kind, pool, inputs)

    def _note_run(self, kind: Any, seen: _Seen) -> None:
        """A call runs unrecorded, in this thread."""
        self._seen[kind] = seen
        self._threads.add(threading.get_ident())

    def _has_to_warm_up(self) -> bool:
        """Whether the call ran in other threads only; in many of them, a next one is as new."""
        is_new = threading.get_ident() not in self._threads
        return is_new and len(self._threads) < RECORDING_LIMIT

    def _replay(
        self, pool: RecordingPool, static: StaticInputs, recorded: _Recorded, inputs: list[Any]
    ) -> tuple[Any, ...]:
        pool.is_replaying = True
        try:
            outputs = recorded.replay(static, inputs)
        finally:
            pool.is_replaying = False
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

    def _without_recording(
        self, kind: Any, pool: RecordingPool, inputs: list[Any]
    ) -> tuple[Any, ...]:
        """A call for which no recording is ready; one may be made."""
        recordings = self._recorded.get(kind)
        if recordings is None:
            return self._begin(kind, pool, inputs)
        if not recordings.static.fit(inputs):
            return self._elsewhere(kind, pool, inputs)
        if recordings.free() is not None or self._has_to_warm_up():
            self._note_run(kind, self._seen[kind])
            return self._call(inputs)
        return self._record(kind, pool, recordings, inputs)

    def _begin(self, kind: Any, pool: RecordingPool, inputs: list[Any]) -> tuple[Any, ...]:
        """A call of a kind that was not recorded yet."""
        addresses = addresses_of(inputs)
        seen = self._seen.get(kind)
        if seen is None and len(self._seen) >= RECORDING_LIMIT:
            return self._call(inputs)
        if seen is None or seen.count < self._facts.warm_ups or self._has_to_warm_up():
            outputs, results = self._warm_up(pool, inputs)
            count = 1 if seen is None else seen.count + 1
            self._note_run(kind, _Seen(count, addresses, results))
            return outputs
        pairs = zip(seen.addresses, addresses, strict=True)
        moved = [number for number, (then, now) in enumerate(pairs) if then != now]
        return self._record_anew(kind, pool, moved, inputs)

    def _warm_up(
        self, pool: RecordingPool, inputs: list[Any]
    ) -> tuple[tuple[Any, ...], tuple[TensorGeometry, ...]]:
        """A call on the side stream, and how the memory of its results is allocated."""
        if self._run_into is None:
            return pool.device.warm_up(self._call, inputs), ()
        memory: list[torch.Tensor | None] = []
        outputs = pool.device.warm_up(self._writing_to(memory), inputs)
        return outputs, tuple(
            [TensorGeometry.of(tensor) for tensor in memory if tensor is not None]
        )

    def _writing_to(self, memory: list[torch.Tensor | None]) -> Call:
        """The call, results of which lie in `memory`."""
        run_into = self._run_into
        assert run_into is not None
        return lambda inputs: run_into(inputs, memory)

    def _elsewhere(self, kind: Any, pool: RecordingPool, inputs: list[Any]) -> tuple[Any, ...]:
        """A call with inputs that lie elsewhere than recorded; after some in a row they count as
        such that move, and a recording is made that copies them.
        """
        recordings = self._recorded[kind]
        self._misses += 1
        recorded = recordings.free()
        is_overwritten = recorded is not None and pool.is_overwritten_by(recorded)
        if self._misses < PATIENCE or is_overwritten or self._has_to_warm_up():
            self._note_run(kind, replace(self._seen[kind], addresses=addresses_of(inputs)))
            return self._call(inputs)
        self._misses = 0
        self._drop(kind)
        return self._record_anew(kind, pool, recordings.static.moved(inputs), inputs)

    def _record_anew(
        self, kind: Any, pool: RecordingPool, moved: Iterable[int], inputs: list[Any]
    ) -> tuple[Any, ...]:
        """Make the first recording of a kind of call."""
        self._moving |= frozenset(moved)
        self._begun += 1
        seen = self._seen[kind]
        try:
            with torch.inference_mode(False), torch.no_grad():
                static = StaticInputs(inputs, self._moving, seen.addresses, self._facts.written)
        except RuntimeError as error:  # Memory does not suffice.
            return self._unrecorded_for(error, inputs)
        turns = TURNS if seen.results else 0
        recordings = self._recorded[kind] = _Recordings(static, turns)
        return self._record(kind, pool, recordings, inputs)

    def _record(
        self, kind: Any, pool: RecordingPool, recordings: _Recordings, inputs: list[Any]
    ) -> tuple[Any, ...]:
        """Make another recording of a kind of call, and replay it."""
        begun = self._begun + recordings.gone
        if begun > 2 * RECORDING_LIMIT:
            self._give_up(f"it was recorded {begun - 1} times")
            return self._call(inputs)
        results = self._seen[kind].results if recordings.next_hands_out() else ()
        try:
            with torch.inference_mode(False), torch.no_grad():
                recorded = self._recorded_on(recordings.static, results, pool, inputs)
        except Exception as error:
            return self._unrecorded_for(error, inputs)
        recordings.add(recorded)
        pool.add(recorded)
        return self._replay(pool, recordings.static, recorded, inputs)

    def _recorded_on(
        self,
        static: StaticInputs,
        results: Sequence[TensorGeometry],
        pool: RecordingPool,
        inputs: list[Any],
    ) -> _Recorded:
        """A recording, whose results lie in memory of its own if `results` says how that looks."""
        static.copy_in(inputs)
        if not results:
            return _Recorded(self._call, inputs, static, None, self._facts, pool.device)
        memory = ResultMemory(results)
        call = self._writing_to(list(memory.tensors))
        return _Recorded(call, inputs, static, memory, self._facts, pool.device)

    def _unrecorded_for(self, error: Exception, inputs: list[Any]) -> tuple[Any, ...]:
        """A call that could not be recorded; no other is."""
        reason = str(error).strip().partition("\n")[0]
        self._give_up(f"{type(error).__name__}: {reason}")
        return self._call(inputs)

    def _give_up(self, why: str) -> None:
        self.why_not = why
        for kind in list(self._recorded):
            self._drop(kind)
        warn(f"a graph is no longer replayed as a CUDA graph, and runs as it was compiled: {why}")


def _storages_of(values: Iterable[Any]) -> set[int]:
    """The addresses of the storages of those values that are tensors."""
    return {one.untyped_storage()._cdata for one in values if isinstance(one, torch.Tensor)}


def _holds_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor without elements stands for memory."""
    return not tensor.numel() and tensor.untyped_storage().nbytes() > 0
