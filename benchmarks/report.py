"""The comparison's figures as a table and as geometric means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from benchmarks.compilers import EAGER, OURS, PEER

LARGEST_ERROR = 1e-5
"""Relative error against eager above which a result counts as wrong, if the measurement does not
come with a bound of its own, `allowed_error`.
"""


class MeasuredRow(Protocol):
    """What this file reads of a model's row."""

    front_end: str
    columns: dict[str, dict[str, Any]]

    @property
    def title(self) -> str:
        """Names the row."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Geometric means over the models where both figures of a ratio are known, and how many those
    are.
    """

    first_call_of_peer: float | None
    """torch.compile's cold first call, in first calls of fusewright."""

    speed_of_eager: float | None
    """Eager's median call in calls of fusewright: above 1, fusewright is faster."""

    speed_of_peer: float | None
    """The same for torch.compile."""

    slowest_of_eager: float | None
    """The least of the models' ratios whose mean is `speed_of_eager`."""

    launches_of_peer: float | None
    """fusewright's launches of generated kernels a call, as a multiple of torch.compile's."""

    bytes_of_peer: float | None
    """fusewright's bytes moved by generated kernels, as a multiple of torch.compile's."""

    saved_of_peer: float | None
    """Bytes that fusewright keeps for backward, as a multiple of torch.compile's."""

    most_saved_of_peer: float | None
    """The greatest of the models' ratios whose mean is `saved_of_peer`."""

    largest_error: float | None
    models: int

    def sentences(self, call: str = "call") -> Iterator[str]:
        """The means in words, but for those that could not be taken; `call`: what was timed."""
        templates = (
            (
                self.first_call_of_peer,
                f"cold first {call}: {{:.1f}} times as fast as torch.compile",
            ),
            (self.speed_of_eager, f"{call}: {{:.2f}} times eager's speed"),
            (self.slowest_of_eager, f"{call}, least of all models: {{:.2f}} times eager's speed"),
            (self.speed_of_peer, f"{call}: {{:.2f}} times torch.compile's speed"),
            (self.launches_of_peer, "kernel launches: {:.2f} times torch.compile's"),
            (self.bytes_of_peer, "bytes moved by kernels: {:.2f} times torch.compile's"),
            (self.saved_of_peer, "saved for backward: {:.2f} times torch.compile's bytes"),
            (self.most_saved_of_peer, "saved, most of all models: {:.2f} times torch.compile's"),
            (self.largest_error, "largest relative error: {:.1e}"),
        )
        for value, template in templates:
            if value is not None:
                yield template.format(value)


def summarise(rows: Sequence[MeasuredRow]) -> Summary:
    """Geometric means of the ratios between columns."""
    errors = [row.columns[OURS]["error"] for row in rows if "error" in row.columns.get(OURS, {})]
    eager_ratios = _ratios(rows, "call", EAGER, OURS)
    saved_ratios = _ratios(rows, "saved", OURS, PEER)
    return Summary(
        first_call_of_peer=_mean(_ratios(rows, "first_call", PEER, OURS)),
        speed_of_eager=_mean(eager_ratios),
        speed_of_peer=_mean(_ratios(rows, "call", PEER, OURS)),
        slowest_of_eager=min(eager_ratios, default=None),
        launches_of_peer=_mean(_ratios(rows, "launches", OURS, PEER)),
        bytes_of_peer=_mean(_ratios(rows, "bytes", OURS, PEER)),
        saved_of_peer=_mean(saved_ratios),
        most_saved_of_peer=max(saved_ratios, default=None),
        largest_error=max(errors, default=None),
        models=len(rows),
    )


def _ratios(rows: Sequence[MeasuredRow], figure: str, above: str, below: str) -> list[float]:
    """`figure` of one column over that of another, where both are known and not 0."""
    pairs = (
        (row.columns.get(above, {}).get(figure), row.columns.get(below, {}).get(figure))
        for row in rows
    )
    return [first / second for first, second in pairs if first and second]


def _mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean, or None of nothing."""
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


Figure = tuple[str, str, Callable[[float], str]]

FIGURES: tuple[Figure, ...] = (
    ("first_call", "first call", lambda seconds: f"{seconds:.2f} s"),
    ("call", "call", lambda seconds: f"{1e3 * seconds:.3g} ms"),
    ("launches", "kernels", lambda count: f"{count:.0f}"),
    ("bytes", "moved", lambda count: f"{count / 1e6:.4g} MB"),
    ("saved", "saved", lambda count: f"{count / 1e6:.4g} MB"),
    ("error", "error", lambda error: f"{error:.0e}" if error else "0"),
)
"""Key in the measurements, heading, and how it is written."""


def is_wrong(figures: dict[str, Any]) -> bool:
    """Whether a column's error is larger than it may be."""
    return bool(figures.get("error", 0.0) > figures.get("allowed_error", LARGEST_ERROR))


def table(rows: Sequence[MeasuredRow], call: str = "call") -> Table:
    """One line a model and column, of the figures that any of them has; `call`: what was timed."""
    shown = Table(title="eager, torch.compile and fusewright, one process a model", title_style="")
    shown.add_column("model")
    shown.add_column("")
    known = {key for row in rows for figures in row.columns.values() for key in figures}
    written = [one for one in FIGURES if one[0] in known]
    for _, heading, _ in written:
        shown.add_column(heading.replace("call", call), justify="right")
    shown.add_column("speed", justify="right")

    for row in rows:
        eager_call = row.columns.get(EAGER, {}).get("call")
        for position, (column, figures) in enumerate(row.columns.items()):
            name = row.title if position == 0 else ""
            cells = _cells(figures, eager_call, written)
            shown.add_row(name, _column_title(row, column), *cells)
        shown.add_section()
    return shown


def _column_title(row: MeasuredRow, column: str) -> str:
    """The column, and for fusewright behind the other capture, that it is."""
    behind_torch = column == OURS and row.front_end == "torch"
    return f"{column} (torch front end)" if behind_torch else column


def _cells(
    figures: dict[str, Any], eager_call: float | None, columns: Sequence[Figure]
) -> list[Text | str]:
    """The figures of one line; a failure in place of what was not measured."""
    if "failure" in figures:
        return [Text(figures["failure"], style="red", overflow="fold"), *[""] * len(columns)]

    cells: list[Text | str] = []
    for key, _, written in columns:
        value = figures.get(key)
        text = "" if value is None else written(value)
        wrong = key == "error" and is_wrong(figures)
        cells.append(Text(text, style="red") if wrong else text)
    call = figures.get("call")
    cells.append(f"{eager_call / call:.2f}x" if eager_call and call else "")
    return cells
