"""Choices in a native plan: the operations of all alternatives, of which each call runs one's.

choose: choice, …, 3 sections at 0, 3, 5     skips to the section of the alternative that won
    call: choice, x, y                       the first decides, and does the work
    skip: 5
    launch: looped, x, y
    skip: 3
    launch: partial, x, t
    launch: total, t, y
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from fusewright.runtime.native_plan import Operation

UNDECIDED: Final = -1
"""No class of sizes: those of a choice that was not made yet."""


def sections_of_choice(
    choice: int, sizes: Sequence[int], sections: Sequence[Sequence[Operation]], place: int
) -> list[Operation]:
    """The operations that run one of `sections`, the first of which decides. `choice` is the
    constant that is asked, `sizes` are the numbers that it depends on, and `place` is the line of
    the Python module that does the same.
    """
    starts = [0, *accumulate(len(section) + 1 for section in sections[:-1])]
    end = starts[-1] + len(sections[-1])
    operands = choice, UNDECIDED, 0, len(sizes), *sizes, len(starts), *starts
    operations: list[Operation] = [("choose", place, operands), *sections[0]]
    for start, section in zip(starts[1:], sections[1:], strict=True):
        operations += [("skip", place, (end - start,)), *section]
    return operations
