"""Choices among kernels, made at the first call: the alternatives are timed on its own inputs, the
fastest does the work, and does it from then on.

What won is kept on disk, so that later processes time nothing, under a key of all that it depends
on: the alternatives with their kernels' sources, the device, and the class of the sizes, which is
between which powers of two each of them lies.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any, Final

import torch

from fusewright import __version__
from fusewright.logs import log_text, warn
from fusewright.records import record
from fusewright.runtime import cuda_graphs
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.layouts import Addresses
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.processor import this_processor
from fusewright.runtime.static_memory import TensorSpan

Way = Callable[..., object]
"""An alternative, called with the tensors and the sizes of a choice."""

FILES: Final = KeptFiles("choices", ".json")
"""What won in earlier processes."""

ROUNDS: Final = 9, 100
"""How often alternatives are timed, at least and at most; the shortest time counts."""

FIRST_ROUNDS: Final = 6
HOPELESS: Final = 2.0
"""An alternative that took so many times the shortest time in the first rounds is timed no more."""

SECONDS: Final = 5e-3
"""How long alternatives are timed together in one pass, about, where they need not be timed more
often.
"""

CLOCK_SECONDS: Final = 1e-5
MOST_TOGETHER: Final = 16
"""So many short runs are timed together on a CPU, at most, and for about so long."""

BATCH_SECONDS: Final = 1e-4
"""How long runs on a GPU are timed together, about: an event is a few µs inexact."""

MOST_RECORDED: Final = 32

STEADY: Final = 1.25
"""By so much the times of two passes may differ."""

GAIN: Final = 0.02
"""By which part another alternative than the first has to be faster, in both passes, else noise
would decide.
"""

NOW_UNDECIDED: Final = -1
"""The section of the first alternative, for a call that decides nothing."""


@record(kw_only=True)
class ChoiceSettings:
    """How choices of one graph are made."""

    is_kept: bool = True
    """Whether what won is read from disk, and written there."""

    table: str = ""
    """A file of comma-separated values that gets a row for each choice that is made."""


@record(kw_only=True)
class Decision:
    """The outcome of timing the alternatives of a choice for one class of sizes."""

    winner: int
    seconds: tuple[float | None, ...]
    """The time of each alternative; None for one that raised an exception."""

    source: str = "timed"
    """How it was found out: `timed` in this process, `kept` by an earlier one, or `forced` by an
    option.
    """

    sizes: tuple[int, ...] = ()
    """The sizes at which the alternatives were timed."""

    is_steady: bool = True
    """Whether the times of two passes were near each other; others are not kept: the machine did
    other things meanwhile.
    """

    @property
    def speed_up(self) -> float | None:
        """By how much the winner is faster than the first alternative."""
        first, best = self.seconds[0], self.seconds[self.winner]
        return None if first is None or not best else first / best


class Choice:
    """A choice of a generated module, whose globals are `namespace`; it is called with tensors and
    sizes. `written`: the numbers of the tensors that are written; `in_place`: of those of them that
    are read, too.
    """

    def __init__(
        self,
        namespace: MutableMapping[str, Any],
        name: str,
        key: str,
        tensors: int,
        written: tuple[int, ...],
        in_place: tuple[int, ...],
        alternatives: Mapping[str, Way],
    ) -> None:
        self.name = name
        self.key = key
        self.names = tuple(alternatives)
        self.decisions: dict[int, Decision] = {}
        """By class of sizes."""

        self.settings = ChoiceSettings(is_kept=False)
        self._namespace = namespace
        self._ways = tuple(alternatives.values())
        self._tensors = tensors
        self._written = written
        self._in_place = in_place
        self._deciding = threading.Lock()

    def __call__(self, *arguments: Any) -> None:
        """Do the work, by the fastest alternative; which that is may have to be found out first."""
        kind = size_class(arguments[self._tensors :])
        decision = self.decisions.get(kind)
        if decision is None:
            decision = self._decide(kind, arguments)
        self._ways[0 if decision is None else decision.winner](*arguments)

    def section(self, kind: int) -> int:
        """The number that tells a native plan what to run for a class of sizes: 0, this choice;
        n, the alternative n - 1; `NOW_UNDECIDED`, the first one, and ask again at the next call.
        """
        decision = self.decisions.get(kind)
        if decision is not None:
            return decision.winner + 1
        return NOW_UNDECIDED if self._deciding.locked() or is_recording() else 0

    def _decide(self, kind: int, arguments: Sequence[Any]) -> Decision | None:
        """Find out what is fastest. None: not now, since another thread does, or since a CUDA graph
        records.
        """
        if is_recording() or not self._deciding.acquire(blocking=False):
            return None
        try:
            if kind in self.decisions:
                return self.decisions[kind]
            tensors = arguments[: self._tensors]
            device = tensors[0].device
            key = kept_key(self.key, str(device), kind)
            decision = self._known(key)
            if decision is None:
                decision = self._measured(tensors, arguments[self._tensors :], device)
                self._keep(key, decision)
            self.decisions[kind] = decision
        finally:
            self._deciding.release()
        if len(arguments) == self._tensors and self._namespace.get(self.name) is self:
            self._namespace[self.name] = self._ways[decision.winner]  # Python calls it directly.
        return decision

    def _known(self, key: str) -> Decision | None:
        return known_decision(key, self.names) if self.settings.is_kept else None

    def _keep(self, key: str, decision: Decision) -> None:
        if self.settings.is_kept and decision.is_steady:
            keep_decision(key, self.names, decision)
        if self.settings.table:
            _write_row(self.settings.table, self.name, self.names, decision)
        log_text("choices", lambda: f"{self.name}: {self.names[decision.winner]} of {decision}")

    def _measured(
        self, tensors: Sequence[torch.Tensor], sizes: Sequence[int], device: torch.device
    ) -> Decision:
        """Time the alternatives. What one raises leaves it out; what all raise is raised. Where
        there is no memory for copies of what they write, the first one is taken.
        """
        try:
            arguments = [*self._safe(tensors), *sizes]
        except RuntimeError:
            return Decision(winner=0, seconds=(None,) * len(self._ways), is_steady=False)
        runs: dict[int, Callable[[], object]] = {}
        failures: dict[int, Exception] = {}
        for number, way in enumerate(self._ways):
            try:
                way(*arguments)
            except Exception as error:
                failures[number] = error
            else:
                runs[number] = lambda way=way: way(*arguments)  # type: ignore[misc]
        if not runs:
            raise failures[0]
        for number, failure in failures.items():
            reason = f"{type(failure).__name__}: {failure}".partition("\n")[0]
            warn(f"{self.name} is computed without its alternative {self.names[number]}: {reason}")
        passes = [time_runs(list(runs.values()), device) for _ in range(2)]
        times = dict(zip(runs, map(min, *passes), strict=True))
        best = min(times, key=lambda number: (times[number], number))
        places = {number: place for place, number in enumerate(runs)}
        is_gain = 0 not in times or all(
            taken[places[best]] < (1 - GAIN) * taken[places[0]] for taken in passes
        )
        return Decision(
            winner=best if is_gain else 0,
            seconds=tuple(times.get(number) for number in range(len(self._ways))),
            sizes=tuple(sizes),
            is_steady=_are_near(passes[0], passes[1]),
        )

    def _safe(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors, with copies of those in which repeated runs would write what they read: of
        in-place arguments, and of results in the memory of an argument.
        """
        spans = [*map(Addresses.of, tensors)]
        clones: dict[int, torch.Tensor] = {}
        for number in self._written:
            others = (span for other, span in enumerate(spans) if other != number)
            if number in self._in_place or any(map(spans[number].overlap, others)):
                clones[spans[number].begin] = _clone(tensors[number])
        return [clones.get(span.begin, tensor) for span, tensor in zip(spans, tensors, strict=True)]


def size_class(sizes: Sequence[int]) -> int:
    """A number for the powers of two between which each of some sizes lies; as `choose` of native
    plans has it.
    """
    number = 0
    for size in sizes:
        number = (number * 67 + (size & (1 << 64) - 1).bit_length()) & (1 << 64) - 1
    return number & (1 << 63) - 1


def is_recording() -> bool:
    """Whether a CUDA graph is recorded on the current stream: what waits for the GPU would break
    that, so that nothing may be timed.
    """
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same values and strides, in memory of its own."""
    span = TensorSpan.of(tensor)
    copy = span.like(tensor)
    span.whole(copy).copy_(span.whole(tensor.detach()))
    return copy


# Timing -------------------------------------------------------------------------------------------


def time_runs(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
    """The shortest time of each, in seconds. Each has run before. On a GPU they are replayed as
    CUDA graphs, if they can be recorded, since the GPU would else wait for short kernels to be
    launched. Tests put another function in place of it.
    """
    if device.type != "cuda":
        return time_turns(runs, device)
    timed = _gpu_timer(device)
    counts = [together(timed(run), MOST_RECORDED, BATCH_SECONDS) for run in runs]
    batches = recorded(runs, counts, device)
    times = time_turns([batch.run for batch in batches], device)
    return [taken / batch.count for taken, batch in zip(times, batches, strict=True)]


def time_turns(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
    """The shortest time of each, in seconds, as it is launched. They take turns, so that what else
    the machine does meets all alike.
    """
    timed = _gpu_timer(device) if device.type == "cuda" else _cpu_timer()
    times = [timed(run) for run in runs]
    fewest, most = ROUNDS
    began, count = time.perf_counter(), 1
    while count < most and (count < fewest or time.perf_counter() - began < SECONDS):
        hopeless = HOPELESS * min(times) if count >= FIRST_ROUNDS else inf
        times = [
            min(best, timed(run)) if best < hopeless else best
            for best, run in zip(times, runs, strict=True)
        ]
        count += 1
    return times


def together(seconds: float, most: int, wanted: float) -> int:
    """How many runs, each of so many seconds, are timed together: at most `most`, and for about
    `wanted` seconds.
    """
    return max(1, min(most, int(wanted / max(seconds, 1e-7))))


def _are_near(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether what was fastest, and what came next, took about as long in both passes."""
    pairs = sorted(zip(first, second, strict=True), key=min)[:2]
    return all(max(pair) <= STEADY * min(pair) for pair in pairs)


def _cpu_timer() -> Callable[[Callable[[], object]], float]:
    """Takes the time of one run; of several short ones together, beside which the clock is slow."""
    counts: dict[int, int] = {}

    def timed(run: Callable[[], object]) -> float:
        count = counts.get(id(run), 1)
        begin = time.perf_counter()
        for _ in range(count):
            run()
        seconds = (time.perf_counter() - begin) / count
        counts.setdefault(id(run), together(seconds, MOST_TOGETHER, CLOCK_SECONDS))
        return seconds

    return timed


def _gpu_timer(device: torch.device) -> Callable[[Callable[[], object]], float]:
    """Takes the time of one run, or of one among several short ones, by events on the current
    stream.
    """
    stream = torch.cuda.current_stream(device)
    counts: dict[int, int] = {}

    def timed(run: Callable[[], object]) -> float:
        count = counts.get(id(run), 1)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        for _ in range(count):
            run()
        end.record(stream)
        end.synchronize()
        seconds: float = begin.elapsed_time(end) / 1e3 / count
        counts.setdefault(id(run), together(seconds, MOST_RECORDED, BATCH_SECONDS))
        return seconds

    return timed


@record
class Batch:
    """Several runs of one alternative, done at once."""

    run: Callable[[], object]
    count: int


def recorded(
    runs: Sequence[Callable[[], object]], counts: Sequence[int], device: torch.device
) -> list[Batch]:
    """So many runs of each as one CUDA graph. Where one of them cannot be recorded, each run by
    itself, so that what launching takes decides between none of them.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    recorder = cuda_graphs.CudaDevice(index)
    batches: list[Batch] = []
    with torch.inference_mode(False), torch.no_grad():
        for run, count in zip(runs, counts, strict=True):
            call = partial(_repeated, run, count)
            try:
                recorder.warm_up(call, [])
                graph, _ = recorder.record(call, [])
            except Exception:
                return [Batch(run, 1) for run in runs]
            batches.append(Batch(graph.replay, count))
    return batches


def _repeated(run: Callable[[], object], count: int, _inputs: list[Any]) -> tuple[()]:
    for _ in range(count):
        run()
    return ()


# What is kept -------------------------------------------------------------------------------------


def kept_key(choice: str, device: str, kind: int) -> str:
    """A hash of all that decides which alternative wins. `choice`: the key of a choice."""
    on = torch.device(device)
    versions = (__version__, torch.__version__, compiler_text(on.type))
    parts = (choice, device_text(on), str(kind), *versions)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def device_text(device: torch.device) -> str:
    """All of a device that decides which of several kernels is fastest on it."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)}"
    target = cpu_target()
    return f"{target.name} {target.features} {torch.get_num_threads()}"


@functools.cache
def compiler_text(device_type: str) -> str:
    """What makes machine code for a type of device, with its version."""
    if device_type != "cuda":
        return f"llvm {this_processor().llvm}"
    with suppress(PackageNotFoundError):  # Machine code on disk needs no compiler.
        return f"triton {version('triton')}"
    return ""


def known_decision(key: str, names: Sequence[str]) -> Decision | None:
    """The decision of an earlier process; None where there is none, or no such alternative."""
    content = FILES.read(key)
    if content is None:
        return None
    with suppress(ValueError, TypeError, KeyError):
        kept = json.loads(content)
        winner, seconds = kept["winner"], kept["seconds"]
        is_whole = kept["names"] == list(names) and len(seconds) == len(names)
        if is_whole and type(winner) is int and 0 <= winner < len(names):
            numbers = tuple(None if s is None else float(s) for s in seconds)
            sizes = tuple(map(int, kept["sizes"]))
            return Decision(winner=winner, seconds=numbers, source="kept", sizes=sizes)
    return None


def decision_of_earlier_process(choice: str, device: str, names: Sequence[str]) -> Decision | None:
    """The kept decision of a choice that depends on no size, by its key, on a device."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        return None
    return known_decision(kept_key(choice, device, 0), names)


def keep_decision(key: str, names: Sequence[str], decision: Decision) -> None:
    """Keep what was found for later processes."""
    content = {
        "names": list(names),
        "seconds": list(decision.seconds),
        "sizes": list(decision.sizes),
        "winner": decision.winner,
    }
    FILES.write(key, json.dumps(content).encode())


_WRITING: Final = threading.Lock()

COLUMNS: Final = ("choice", "alternatives", "microseconds", "sizes", "winner", "speed_up")


def _write_row(path: str, name: str, names: Sequence[str], decision: Decision) -> None:
    """Append a row to the table; the file begins with the names of the columns."""
    times = ("" if s is None else f"{s * 1e6:.3f}" for s in decision.seconds)
    gain = decision.speed_up
    row = (
        name,
        " ".join(names),
        " ".join(times),
        " ".join(map(str, decision.sizes)),
        names[decision.winner],
        "" if gain is None else f"{gain:.3f}",
    )
    with _WRITING, Path(path).open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        writer.writerow(row)
