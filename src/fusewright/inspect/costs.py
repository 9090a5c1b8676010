"""`fusewright profile`: the kernels and library calls that a program spends most time in, how near
they come to what the machine can do, and what would be worth changing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import torch

from fusewright.inspect.explanation import Explanation, merged_breaks
from fusewright.inspect.machine import copy_bandwidth, product_rate
from fusewright.inspect.operations import Operations, operations_of_kernels, operations_of_lines
from fusewright.ir.dtype import DType
from fusewright.records import record
from fusewright.runtime.compiled import Record
from fusewright.runtime.profiling import Label, Spent

SHOWN: Final = 10
SMALL_LAUNCH: Final = 1 << 15
"""Bytes: launches that move fewer cost about as much as those that move nothing."""

LARGE_LAUNCH: Final = 1 << 20
"""Bytes that take longer to move than a launch."""

SLOW_PRODUCT: Final = 0.4
SLOW_KERNEL: Final = 0.3
"""Shares of the machine's best, below which something is told of."""

COPIES: Final = ("clone", "copy", "_to_copy", "contiguous")


@record(kw_only=True)
class CostRow:
    """One kernel, or the calls of an operator from one line."""

    label: Label
    count: int
    seconds: float
    bytes: float
    """Bytes that one call moves; 0 where that is not known."""

    operations: Operations | None
    """The work of one call of a matrix product; None for others."""

    @property
    def bytes_per_second(self) -> float:
        return self.bytes * self.count / self.seconds if self.seconds else 0.0

    @property
    def operations_per_second(self) -> float:
        if self.operations is None or not self.seconds:
            return 0.0
        return self.operations.count * self.count / self.seconds

    @property
    def is_copy(self) -> bool:
        """Whether it is a library's copy."""
        names = (operator.split(".")[1] for operator in self.label.operators if "." in operator)
        return not self.label.kernel and any(name in COPIES for name in names)


@record(kw_only=True)
class MachineRates:
    """The most that the machine reaches, as measured on it."""

    bytes_per_second: float
    operations_per_second: Mapping[DType, float]
    """By type of a product's operands."""

    threads: int
    cores: int

    @classmethod
    def measured(cls, dtypes: Iterable[DType]) -> MachineRates:
        """The machine that this runs on, or its GPU where the program has used one. `dtypes`: of
        operands of products; of others nothing is measured.
        """
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        return cls(
            bytes_per_second=copy_bandwidth(device),
            operations_per_second={dtype: product_rate(device, dtype) for dtype in dtypes},
            threads=torch.get_num_threads(),
            cores=len(os.sched_getaffinity(0)),
        )

    def share_of_product(self, cost: CostRow) -> float:
        """The speed of a matrix product as a share of that of a large one in the same type."""
        assert cost.operations is not None
        return cost.operations_per_second / self.operations_per_second[cost.operations.dtype]


@record(kw_only=True)
class Profile:
    """Where the time of a program went, from its first compile to its end."""

    costs: tuple[CostRow, ...]
    """The costliest first."""

    seconds: float
    compile_seconds: float
    explanations: tuple[Explanation, ...]
    machine: MachineRates

    @property
    def compiled_seconds(self) -> float:
        """In kernels and library calls of compiled graphs."""
        return sum(cost.seconds for cost in self.costs)

    @property
    def running_seconds(self) -> float:
        """The program without compiling."""
        return max(self.seconds - self.compile_seconds, 1e-9)

    def advice(self) -> list[str]:
        """Changes that would be worth making, one sentence each."""
        return [sentence for rule in RULES for sentence in rule(self)]

    def __str__(self) -> str:
        head = (
            f"{_seconds(self.seconds)}: {_seconds(self.compile_seconds)} compiling, "
            f"{_seconds(self.compiled_seconds)} in kernels and library calls of compiled code"
        )
        if not self.costs:
            return f"{head}\nno compiled graph was run"
        rows = [
            ROW.format("", "calls", "time", "%", "a call", "of one call", "achieved", "of best")
        ]
        rows += [self._row(cost) for cost in self.costs[:SHOWN]]
        left = self.costs[SHOWN:]
        if left:
            rest = sum(cost.seconds for cost in left)
            rows.append(f"{len(left)} others take {_seconds(rest)}")
        products = ", ".join(
            f"{rate / 1e9:.0f} GFLOP/s in {dtype.torch_name}"
            for dtype, rate in self.machine.operations_per_second.items()
        )
        best = (
            f"best: a large copy, {self.machine.bytes_per_second / 1e9:.1f} GB/s (data in caches "
            f"may be faster){'; a large product, ' * bool(products)}{products}"
        )
        advice = self.advice()
        suggestions = (
            ["worth changing", *(f"- {sentence}" for sentence in advice)] if advice else []
        )
        return "\n".join([head, "", *rows, best, *([""] if suggestions else []), *suggestions])

    def _row(self, cost: CostRow) -> str:
        moved = achieved = share = ""
        if cost.operations is not None:
            moved = f"{_in_thousands(cost.operations.count)}FLOP"
            achieved = f"{_in_thousands(cost.operations_per_second)}FLOP/s"
            share = f"{self.machine.share_of_product(cost):.0%}"
        elif cost.bytes:
            moved = f"{_in_thousands(cost.bytes)}B"
            achieved = f"{_in_thousands(cost.bytes_per_second)}B/s"
            share = f"{cost.bytes_per_second / self.machine.bytes_per_second:.0%}"
        return ROW.format(
            _shortened(cost.label.text),
            f"{cost.count:,}",
            _seconds(cost.seconds),
            f"{cost.seconds / self.running_seconds:.1%}",
            _seconds(cost.seconds / max(cost.count, 1)),
            moved,
            achieved,
            share,
        ).rstrip()


HEADINGS: Final = ("", "calls", "time", "%", "a call", "one call", "achieved", "of best")
ROW: Final = "{:<52} {:>7} {:>8} {:>6} {:>8} {:>13} {:>14} {:>7}"


def profile_of(
    spent: Mapping[Label, Spent], explanations: Sequence[Explanation], ended: float
) -> Profile:
    """The profile of a program from what was recorded of it. It ended at `ended`, in seconds of
    `time.perf_counter`.
    """
    began = (
        compilation.began
        for explanation in explanations
        for compilation in explanation.compilations
    )
    seconds = ended - min(began, default=ended)
    records = [
        part
        for explanation in explanations
        for compilation in explanation.compilations
        for part in compilation.records
    ]
    moved, of_lines = _bytes_of_kernels(records), operations_of_lines(records)
    of_kernels = operations_of_kernels(records)
    costs = []
    for label, times in spent.items():
        line = (label.operators[:1], label.places[:1])
        of_call = of_kernels.get(label.kernel) if label.kernel else of_lines.get(line)
        costs.append(
            CostRow(
                label=label,
                count=times.count,
                seconds=times.seconds,
                bytes=moved.get(label.kernel, 0.0),
                operations=of_call,
            )
        )
    return Profile(
        costs=tuple(sorted(costs, key=lambda cost: -cost.seconds)),
        seconds=seconds,
        compile_seconds=sum(
            sum(explanation.stage_seconds.values()) for explanation in explanations
        ),
        explanations=tuple(explanations),
        machine=MachineRates.measured(
            dict.fromkeys(cost.operations.dtype for cost in costs if cost.operations is not None)
        ),
    )


def _bytes_of_kernels(records: Sequence[Record]) -> dict[str, float]:
    """By kernel, what a launch moves, on average."""
    totals: dict[str, int] = {}
    counts: dict[str, int] = {}
    for launch in (launch for graph_record in records for launch in graph_record.launches):
        moved = launch.bytes_read + launch.bytes_written
        totals[launch.kernel] = totals.get(launch.kernel, 0) + moved
        counts[launch.kernel] = counts.get(launch.kernel, 0) + (not launch.shares_launch)
    return {kernel: moved / counts[kernel] for kernel, moved in totals.items()}


# Advice -------------------------------------------------------------------------------------------


def _outside(profile: Profile) -> Iterator[str]:
    inside, running = profile.compiled_seconds, profile.running_seconds
    if inside < running / 2 and running > 0.1:
        yield (
            f"{1 - inside / running:.0%} of the time is spent outside of compiled code: in Python, "
            "in data, in operators that run eagerly"
        )


def _breaks(profile: Profile) -> Iterator[str]:
    breaks = sum(len(merged_breaks(explanation.breaks)) for explanation in profile.explanations)
    eager = sum(
        len(explanation.fallbacks) + len(explanation.failures)
        for explanation in profile.explanations
    )
    if breaks or eager:
        counts = {"graph break": breaks, "part that runs eagerly": eager}
        things = [f"{count} × {thing}" for thing, count in counts.items() if count]
        yield f"{' and '.join(things)}: fusewright explain names the lines, and what to change"


def _recompiles(profile: Profile) -> Iterator[str]:
    recompiles = sum(len(explanation.recompiles) for explanation in profile.explanations)
    if recompiles and profile.compile_seconds > 0.2 * profile.seconds:
        yield (
            f"compiling takes {profile.compile_seconds / profile.seconds:.0%} of the time, and "
            f"{recompiles} times it was done again: fusewright explain names the guards; "
            "dynamic=True compiles for any size"
        )


def _slow_products(profile: Profile) -> Iterator[str]:
    slow = [
        cost
        for cost in profile.costs[:SHOWN]
        if cost.operations is not None and profile.machine.share_of_product(cost) < SLOW_PRODUCT
    ]
    seconds = sum(cost.seconds for cost in slow)
    if slow and seconds > 0.2 * profile.compiled_seconds:
        yield (
            f"{_names(slow)} take {seconds / profile.compiled_seconds:.0%} of compiled code's time "
            f"and reach less than {SLOW_PRODUCT:.0%} of what a large product does: matrices are "
            "small, and a larger batch, or several products as one, would use more of the machine"
        )


def _names(costs: Sequence[CostRow]) -> str:
    """The first two, and how many others."""
    shown = [cost.label.text for cost in costs[:2]]
    others = len(costs) - 2
    return f"{', '.join(shown)} and {others} others" if others > 0 else " and ".join(shown)


def _small_launches(profile: Profile) -> Iterator[str]:
    small = [cost for cost in profile.costs if cost.label.kernel and 0 < cost.bytes < SMALL_LAUNCH]
    seconds = sum(cost.seconds for cost in small)
    if small and seconds > 0.1 * profile.compiled_seconds:
        count = sum(cost.count for cost in small)
        yield (
            f"{count:,} launches move less than {SMALL_LAUNCH // 1024} KiB each, and take "
            f"{seconds / profile.compiled_seconds:.0%} of compiled code's time: work on more data "
            "in a call"
        )


def _slow_kernels(profile: Profile) -> Iterator[str]:
    best = profile.machine.bytes_per_second
    slow = [
        cost
        for cost in profile.costs[:SHOWN]
        if cost.label.kernel
        and cost.operations is None
        and cost.bytes >= LARGE_LAUNCH
        and cost.bytes_per_second < SLOW_KERNEL * best
        and cost.seconds > 0.05 * profile.compiled_seconds
    ]
    if slow:
        yield (
            f"{_names(slow)} reach less than {SLOW_KERNEL:.0%} of a copy's speed: they compute "
            "more than they move; fusewright report shows their loops"
        )


def _copies(profile: Profile) -> Iterator[str]:
    for cost in profile.costs[:SHOWN]:
        if cost.is_copy and cost.seconds > 0.05 * profile.compiled_seconds:
            yield f"{cost.label.text} copies: another layout or type at that line would save it"


def _threads(profile: Profile) -> Iterator[str]:
    machine = profile.machine
    if machine.threads < machine.cores and not torch.cuda.is_initialized():
        run = "1 thread runs" if machine.threads == 1 else f"{machine.threads} threads run"
        yield f"{run} on {machine.cores} cores: torch.set_num_threads"


RULES: Final[tuple[Callable[[Profile], Iterator[str]], ...]] = (
    _outside,
    _breaks,
    _recompiles,
    _slow_products,
    _small_launches,
    _slow_kernels,
    _copies,
    _threads,
)


def _in_thousands(number: float) -> str:
    """Four digits, and the prefix of a unit."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.4g} {prefix}"
    return f"{number / 1e3:.4g} k"


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _shortened(text: str) -> str:
    return text if len(text) <= 52 else f"{text[:51]}…"
