"""Whether rows lie across memory, of small loops."""

from __future__ import annotations

import pytest

from fusewright.ir.contiguity import rows_lie_across
from fusewright.ir.index import Index, LoopSymbol, integer

ROW, INNER = LoopSymbol("i0", integer(64)), LoopSymbol("r0", integer(32))
COLUMN = LoopSymbol("i1", integer(8))
i, j, r = ROW.index, COLUMN.index, INNER.index


@pytest.mark.parametrize(
    ("indices", "share", "across"),
    [
        ([32 * i + r], 1, False),
        ([64 * r + i], 1, True),
        ([64 * r + 2 * i], 1, False),  # nothing is next to anything
        ([i], 1, False),  # of a bias, which stays where it is along the row
        ([32 * i + r, 64 * r + i], 1, False),  # as many of each kind
        ([32 * i + r, 64 * r + i], 2, True),
        ([r, 64 * r + i], 1, True),  # the row that all share has fewer elements
        ([512 * r + 8 * i + j], 1, True),
        ([], 4, False),
    ],
)
def test_rows(indices: list[Index], share: int, across: bool) -> None:
    accesses = [(index, (INNER,)) for index in indices]
    turns = {ROW: 64, COLUMN: 8, INNER: 32}.__getitem__
    assert rows_lie_across(accesses, (ROW, COLUMN), turns, share) is across
