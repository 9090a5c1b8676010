"""Intervals of integers: the bounds of a result, from those of its operands."""

from __future__ import annotations

from collections.abc import Callable

Bound = int | None
"""An inclusive bound; None where nothing is known."""

Interval = tuple[Bound, Bound]


def add(left: Interval, right: Interval) -> Interval:
    """Bounds of a sum."""
    (a, b), (c, d) = left, right
    return (
        None if a is None or c is None else a + c,
        None if b is None or d is None else b + d,
    )


def multiply(left: Interval, right: Interval) -> Interval:
    """Bounds of a product; unknown ends stay unknown unless a sign settles them."""
    (a, b), (c, d) = left, right
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and a >= 0 and c is not None and c >= 0:
        return a * c, (b * d if b is not None and d is not None else None)
    if a is not None and a == b and a < 0:
        return (a * d if d is not None else None), (a * c if c is not None else None)
    return None, None


def floor_divide(left: Interval, right: Interval) -> Interval:
    """Bounds of a quotient, rounded down, by a positive divisor."""
    (a, b), (c, d) = left, right
    least = max(c or 1, 1)
    lower: Bound = None
    upper: Bound = None
    if a is not None:
        lower = a // least if a < 0 else (a // d if d is not None else 0)
    if b is not None:
        upper = b // least if b >= 0 else (b // d if d is not None else -1)
    return lower, upper


def remainder(left: Interval, right: Interval) -> Interval:
    """Bounds of the remainder of that."""
    (a, b), (_, d) = left, right
    top = None if d is None else d - 1
    if a is not None and a >= 0 and b is not None:
        top = b if top is None else min(top, b)
    return 0, top


def minimum(left: Interval, right: Interval) -> Interval:
    """Bounds of the lesser."""
    (a, b), (c, d) = left, right
    ends = [end for end in (b, d) if end is not None]
    return None if a is None or c is None else min(a, c), min(ends, default=None)


def maximum(left: Interval, right: Interval) -> Interval:
    """Bounds of the greater."""
    (a, b), (c, d) = left, right
    ends = [end for end in (a, c) if end is not None]
    return max(ends, default=None), None if b is None or d is None else max(b, d)


OF_COMPOUNDS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "//": floor_divide,
    "%": remainder,
    "min": minimum,
    "max": maximum,
}
"""By operator of a compound of the index language."""
