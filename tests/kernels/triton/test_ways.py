"""Each way to do the work of a reduction on a GPU gives its results, under Triton's interpreter."""

from __future__ import annotations

import pytest

from tests.kernels.triton.interpreted import with_ways  # isort: skip - it sets the interpreter up

from tests.kernels.ways_programs import PROGRAMS, check, compiled

WAYS = {"one sum": {"walked", "split"}, "short rows": {"held", "walked"}}


@pytest.mark.parametrize("way", ["0", "1", "2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_gives_the_results(name: str, way: str) -> None:
    graph = compiled(name, way, with_ways)
    check(name, graph)
    names = {name for choice in graph.record.choices for name in choice.alternatives}
    assert names >= WAYS.get(name, {"held"})
