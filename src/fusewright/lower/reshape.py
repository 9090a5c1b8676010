"""Positions under a change of shape: where, in row-major order of one shape, a position of another
shape lies.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.index import Index, contiguous_strides, integer, product
from fusewright.ir.proof import proves
from fusewright.ir.relations import below
from fusewright.lower.boxes import Position


def reshape_position(old: Sequence[Index], new: Sequence[Index], at: Position) -> Position:
    """The position in shape `old` of the element that shape `new` holds at `at`; both are
    row-major.

    Runs of dimensions with equal products are converted by themselves, so that most indices stay
    free of division: [128, 768] at [i0, 64*i1 + i2] for [128, 12, 64] at [i0, i1, i2].
    """
    if any(extent == 0 for extent in old):
        return tuple(integer(0) for _ in old)
    position: list[Index] = []
    for old_run, new_run in _runs(old, new):
        position += _convert(
            [old[d] for d in old_run], [new[d] for d in new_run], [at[d] for d in new_run]
        )
    return tuple(position)


def _runs(old: Sequence[Index], new: Sequence[Index]) -> list[tuple[list[int], list[int]]]:
    """Shortest pairs of runs of dimensions with equal products, in order; dimensions of size 1 join
    any run.
    """
    runs: list[tuple[list[int], list[int]]] = []
    old_run: list[int] = []
    new_run: list[int] = []
    i, j = 0, 0
    while i < len(old) or j < len(new):
        left, right = product(old[d] for d in old_run), product(new[d] for d in new_run)
        if old_run and new_run and left == right:
            runs.append((old_run, new_run))
            old_run, new_run = [], []
        elif i < len(old) and (
            j == len(new) or (not new_run and old_run == []) or proves(below(left, right))
        ):
            old_run.append(i)
            i += 1
        elif j < len(new):
            new_run.append(j)
            j += 1
        else:
            old_run.append(i)
            i += 1
    if old_run or new_run:
        runs.append((old_run, new_run))
    return runs


def _convert(old: list[Index], new: list[Index], at: list[Index]) -> list[Index]:
    if len(old) == len(new) == 1:
        return at
    flat = integer(0)
    for index, stride in zip(at, contiguous_strides(new), strict=True):
        flat = flat + index * stride
    position: list[Index] = []
    for d, stride in enumerate(contiguous_strides(old)):
        if old[d] == 1:
            position.append(integer(0))
            continue
        index = flat // stride
        outermost = all(extent == 1 for extent in old[:d])
        position.append(index if outermost else index % old[d])
    return position
