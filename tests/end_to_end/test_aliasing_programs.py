"""A sample of random programs of views, writes and results."""

from __future__ import annotations

import pytest

from tests.end_to_end.aliasing_programs import MODES, differences

SAMPLE = (5, 11, 33, 37, 61, 65, 79, 97, 233, 365, 677, *range(100, 130))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SAMPLE)
def test_as_in_eager(seed: int) -> None:
    source, texts = differences(seed, [*MODES][seed % len(MODES)], strict=False)
    assert not texts, source
