"""The benchmark that a generated module is when it is run by itself: `python FILE [SIZE=NUMBER …]`.

It prints how long each kernel and library call takes in a call of the module on random inputs, and
how fast kernels move their bytes beside a copy of as many.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import torch

from fusewright.operators import trusts_integers
from fusewright.records import field, record
from fusewright.runtime.layouts import length_of

REPEATS: Final = 50
WARM_UPS: Final = 3

SIZE: Final = 8
"""The value of a symbolic size where the command gives none."""


@record
class Size:
    """A symbolic size among a module's inputs."""

    name: str


@record
class Input:
    """A tensor among a module's inputs or constants; symbolic sizes and strides are expressions as
    text.
    """

    size: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    dtype: torch.dtype
    device: str | torch.device

    def random(self, sizes: Mapping[str, int]) -> torch.Tensor:
        """Normal numbers, or zeros and ones for integers, which are valid indices nearly
        everywhere. Elements that share memory are equal.
        """

        def number(value: int | str) -> int:
            if isinstance(value, int):
                return value
            return int(eval(value, {"min": min, "max": max}, dict(sizes)))

        size = [number(value) for value in self.size]
        stride = [number(value) for value in self.stride]
        tensor = torch.empty_strided(size, stride, dtype=self.dtype, device=self.device)
        memory = tensor.as_strided((length_of(tensor),), (1,))
        if self.dtype.is_floating_point and self.dtype.itemsize == 1:
            memory.copy_(torch.randn(memory.shape))
        elif self.dtype.is_floating_point or self.dtype.is_complex:
            memory.normal_()
        else:
            memory.random_(0, 2)
        return tensor


ONLY_THE_PROGRAM: Final = (
    "this module takes what only its program makes: a packed weight, or what a call of its forward "
    "half keeps"
)


TRUSTS_INTEGERS: Final = (
    "this module calls {}, whose kernel trusts the integers it is given: random ones could lead it "
    "out of its memory"
)


@record
class OpaqueInput:
    """An opaque value among a module's inputs: what a call of a forward graph kept for it, or a
    weight that oneDNN has packed.
    """

    def random(self, sizes: Mapping[str, int]) -> torch.Tensor:
        """Raises RuntimeError: no random value can stand for it."""
        raise RuntimeError(ONLY_THE_PROGRAM)


@record(frozen=False)
class StepTimes:
    """The times of one kernel or library call in one call of the module."""

    seconds: float = 0.0
    count: int = 0
    bytes: int = 0


Specification = Size | Input | OpaqueInput


def measure(
    module: MutableMapping[str, Any],
    inputs: Sequence[Specification],
    kernels: Mapping[str, str],
    calls: Sequence[str],
) -> None:
    """Call a generated module, whose globals are `module`, on random inputs, and print where the
    time goes.

    `kernels`: names of each kernel's tensor arguments, by its own; `calls`: variables that hold
    library calls. The command line may say what symbolic sizes are. SystemExit: it says something
    else, or the module cannot be called on random inputs.
    """
    if reason := _why_not_random(module, inputs, calls):
        raise SystemExit(reason)
    sizes = _sizes(inputs, sys.argv[1:])
    _report(time_module(module, inputs, kernels, calls, sizes), kernels)


def _why_not_random(
    module: Mapping[str, Any], inputs: Sequence[Specification], calls: Sequence[str]
) -> str:
    """Why a module cannot be called on random inputs; empty where it can."""
    if any(isinstance(specification, OpaqueInput) for specification in inputs):
        return ONLY_THE_PROGRAM
    trusting = (module[name] for name in calls if trusts_integers(module.get(name)))
    return next((TRUSTS_INTEGERS.format(operator) for operator in trusting), "")


@record(kw_only=True)
class Measured:
    """Where the time of a call goes."""

    spans: dict[str, StepTimes]
    """By kernel and variable of a library call: the median over all rounds."""

    seconds: float
    """The median of a call in which nothing is timed by itself."""

    repeats: int
    clock: _Clock
    device: torch.device

    def copy_seconds(self, span: StepTimes) -> float:
        """How long copies take that move as many bytes as a kernel's launches."""
        return _copy_seconds(span.bytes // span.count, self.clock, self.device) * span.count


def time_module(
    module: MutableMapping[str, Any],
    inputs: Sequence[Specification],
    kernels: Mapping[str, str],
    calls: Sequence[str],
    sizes: Mapping[str, int],
    repeats: int = REPEATS,
) -> Measured:
    """Call a generated module on random inputs, and time its kernels and library calls: see
    `measure`. `sizes`: what symbolic sizes are. RuntimeError: it may not be called on such.
    """
    if reason := _why_not_random(module, inputs, calls):
        raise RuntimeError(reason)
    arguments = [
        sizes[specification.name]
        if isinstance(specification, Size)
        else specification.random(sizes)
        for specification in inputs
    ]
    devices = {
        specification.device
        for specification in arguments
        if isinstance(specification, torch.Tensor)
    }
    gpu = next((device for device in devices if device.type == "cuda"), None)
    clock = _EventClock(gpu) if gpu is not None else _Clock()
    call: Callable[[list[Any]], Any] = module["call"]
    torch.manual_seed(0)
    wholes = []
    for _ in range(WARM_UPS + repeats):
        with clock.running() as whole:
            call(list(arguments))
        wholes.append(whole)
    clock.wait()
    rounds = []
    with _timed(module, kernels, calls, clock) as spans:
        for _ in range(WARM_UPS + repeats):
            call(list(arguments))
            clock.wait()
            rounds.append({name: _totals(spans[name]) for name in spans})
            spans.clear()
    return Measured(
        spans=_medians(rounds[WARM_UPS:]),
        seconds=median(whole.seconds() for whole in wholes[WARM_UPS:]),
        repeats=repeats,
        clock=clock,
        device=gpu or torch.device("cpu"),
    )


def _medians(rounds: Sequence[Mapping[str, StepTimes]]) -> dict[str, StepTimes]:
    """By name, the median of the times in all rounds."""
    spans = {}
    for name, span in rounds[0].items():
        times = [totals[name].seconds for totals in rounds if name in totals]
        spans[name] = StepTimes(median(times), span.count, span.bytes)
    return spans


def _sizes(inputs: Sequence[Specification], words: Sequence[str]) -> dict[str, int]:
    sizes = {size.name: SIZE for size in inputs if isinstance(size, Size)}
    for word in words:
        name, _, value = word.partition("=")
        if name not in sizes or not value.isdigit():
            names = ", ".join(f"{name}={SIZE}" for name in sizes) or "none"
            raise SystemExit(f"{word!r} is no size of this module; it has: {names}")
        sizes[name] = int(value)
    return sizes


# Clocks -------------------------------------------------------------------------------------------


@record(frozen=False)
class _Watch:
    """One time that was taken."""

    begin: Any = None
    end: Any = None
    difference: Callable[[Any, Any], float] = field(default=lambda begin, end: end - begin)

    def seconds(self) -> float:
        return self.difference(self.begin, self.end)


class _Clock:
    """Takes times on the CPU."""

    name = "the processor's clock"

    @contextmanager
    def running(self) -> Iterator[_Watch]:
        watch = _Watch(time.perf_counter())
        yield watch
        watch.end = time.perf_counter()

    def wait(self) -> None:
        """See to it that all times are there."""


class _EventClock(_Clock):
    """Takes times of a GPU, by events on its current stream."""

    name = "events on the GPU"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @contextmanager
    def running(self) -> Iterator[_Watch]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        watch = _Watch(begin, end, lambda begin, end: begin.elapsed_time(end) / 1e3)
        stream = torch.cuda.current_stream(self._device)
        begin.record(stream)
        yield watch
        end.record(stream)

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)


# Kernels and calls --------------------------------------------------------------------------------

_Times = dict[str, list[tuple[_Watch, int]]]
"""By name, each time and the bytes that were moved in it."""


@contextmanager
def _timed(
    module: MutableMapping[str, Any],
    kernels: Mapping[str, str],
    calls: Sequence[str],
    clock: _Clock,
) -> Iterator[_Times]:
    """A block in which kernels and library calls are timed."""
    times: _Times = {}

    def timed(name: str, function: Callable[..., Any], names: Sequence[str]) -> Any:
        def run(*arguments: Any, **keywords: Any) -> Any:
            moved = sum(map(_bytes, names, arguments))
            with clock.running() as watch:
                result = function(*arguments, **keywords)
            times.setdefault(name, []).append((watch, moved))
            return result

        return run

    before = {name: module[name] for name in (*kernels, *calls)}
    module.update(
        (name, timed(name, function, kernels.get(name, "").split()))
        for name, function in before.items()
    )
    try:
        yield times
    finally:
        module.update(before)


def _bytes(name: str, tensor: torch.Tensor) -> int:
    """The bytes that a kernel moves of an argument that it reads or writes once; memory that it
    does both to counts twice.
    """
    return tensor.numel() * tensor.element_size() * (2 if name.startswith("inout") else 1)


def _totals(times: Sequence[tuple[_Watch, int]]) -> StepTimes:
    return StepTimes(
        sum(watch.seconds() for watch, _ in times), len(times), sum(moved for _, moved in times)
    )


def _copy_seconds(moved: int, clock: _Clock, device: torch.device) -> float:
    """The time of a copy that reads and writes so many bytes together."""
    source = torch.zeros(max(1, moved // 2), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    watches = []
    for _ in range(WARM_UPS + REPEATS):
        with clock.running() as watch:
            target.copy_(source)
        watches.append(watch)
    clock.wait()
    return median(watch.seconds() for watch in watches[WARM_UPS:])


# Report -------------------------------------------------------------------------------------------

_ROW: Final = "{:<48} {:>6} {:>10} {:>6} {:>9} {:>8} {:>7}"


def _report(measured: Measured, kernels: Mapping[str, str]) -> None:
    """Print a row for each kernel and library call, the longest first, and the whole."""
    seconds = measured.seconds
    ordered = sorted(measured.spans.items(), key=lambda item: -item[1].seconds)
    print(_ROW.format("", "times", "µs", "%", "MB", "GB/s", "of copy"))
    for name, span in ordered:
        share = f"{100 * span.seconds / seconds:.1f}"
        row = [name, span.count, f"{span.seconds * 1e6:.1f}", share]
        if name in kernels:
            copy = measured.copy_seconds(span)
            rate = span.bytes / span.seconds / 1e9
            row += [f"{span.bytes / 1e6:.3f}", f"{rate:.1f}", f"{copy / span.seconds:.2f}"]
        print(_ROW.format(*row, *[""] * (7 - len(row))).rstrip())
    inside = sum(span.seconds for span in measured.spans.values())
    print(
        f"median of {measured.repeats} calls: {seconds * 1e3:.3f} ms, of which kernels and library "
        f"calls take {inside * 1e3:.3f} ms when each is timed ({measured.clock.name}, "
        f"{measured.device})"
    )
