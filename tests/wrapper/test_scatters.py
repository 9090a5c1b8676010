"""Calls that write to a copy of their first argument write to it in place where it dies with them,
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from fusewright.config import TARGETS, Options
from fusewright.context import CompileContext
from fusewright.ir.forms import print_lines
from fusewright.ir.lines import CallExtern
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.verify_lines import verify_lines
from fusewright.operators import facts, operator_named
from fusewright.pipeline import compile_graph
from fusewright.runtime.compiled import CompiledGraph
from fusewright.wrapper.scatters import IN_PLACE, scatter_in_place
from tests.golden import golden

Write = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Of a matrix, numbers of its rows, places of its size and values of as many elements; none that
kernels do.
"""

WRITES: dict[str, Write] = {
    "aten.index_put_.default": lambda x, i, p, v: x.index_put((p[0, :6] >= 0,), v.repeat(2, 1)),
    "aten.scatter_.reduce": lambda x, i, p, v: x.scatter(0, p[:1], v, reduce="multiply"),
    "aten.scatter_.value_reduce": lambda x, i, p, v: x.scatter(0, p[:1], 2.5, reduce="multiply"),
    "aten.scatter_reduce_.two": lambda x, i, p, v: x.scatter_reduce(0, p, v, "mean"),
    "aten.index_reduce_.default": lambda x, i, p, v: x.index_reduce(0, i, v, "prod"),
    "aten.masked_scatter_.default": lambda x, i, p, v: x.masked_scatter(x > 0.1, v.repeat(3, 1)),
    "aten.put_.default": lambda x, i, p, v: x.put(i, v[0, :3]),
}


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    places = torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(8)], 1)
    x, values = (torch.randn(rows, 8, generator=generator) for rows in (6, 3))
    return [x, torch.tensor([0, 3, 5]), places, values]


def compiled(function: Callable[..., object], target: str) -> CompiledGraph:
    context = CompileContext(options=Options(verify=True, target=target))
    with torch.no_grad():
        graph = compile_graph(fx.symbolic_trace(function), inputs(), context)
        torch.testing.assert_close(graph(*inputs()), function(*inputs()))
    return graph


def calls(graph: CompiledGraph) -> list[str]:
    lines = graph.record.lines
    verify_lines(parse_lines(print_lines(lines)))
    return [line.operator for line in lines if isinstance(line, CallExtern)]


def written(graph: CompiledGraph) -> list[object]:
    """The first arguments of its library calls."""
    return [line.arguments[0] for line in graph.record.lines if isinstance(line, CallExtern)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", WRITES)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_memory_that_dies_is_written_to(operator: str, target: str) -> None:
    write = WRITES[operator]
    graph = compiled(lambda x, i, p, v: write(torch.softmax(x, -1), i, p, v) * 2, target)
    assert calls(graph) == [operator]


@pytest.mark.parametrize("operator", WRITES)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_memory_that_is_read_again_is_not(operator: str) -> None:
    """Nor an input, which keeps its value where a later step raises."""
    write = WRITES[operator]
    in_place = {new: old for old, new in IN_PLACE.items()}[operator]

    def reads_again(x: Tensor, i: Tensor, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.softmax(x, -1)
        return torch.softmax(write(y, i, p, v), -1), y

    graph = compiled(reads_again, "native")
    if facts(in_place).overwrites:  # of a copy, which the kernel before it writes too
        assert graph.record.lines[-1].outputs[1] not in written(graph)
    else:
        assert calls(graph) == [in_place]
    graph = compiled(lambda x, i, p, v: write(x, i, p, v) * 2, "native")
    assert calls(graph) == [in_place]


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_nor_what_gives_the_values_too() -> None:
    def spreads(x: Tensor, i: Tensor, p: Tensor, v: Tensor) -> Tensor:
        y = torch.softmax(x, -1)
        return y.index_reduce(0, torch.arange(5, -1, -1), y, "prod") * 2

    assert calls(compiled(spreads, "native")) == ["aten.index_reduce.default"]


def test_an_index_out_of_range_raises_as_before() -> None:
    graph = compiled(lambda x, i, p, v: torch.softmax(x, -1).index_put((i,), v) * 2, "native")
    x, i, p, v = inputs()
    with torch.no_grad():
        with pytest.raises(IndexError, match="out of"):
            graph(x, i + 9, p, v)
        expected = torch.softmax(x, -1).index_put((i,), v) * 2
        torch.testing.assert_close(graph(x, i, p, v), expected)


@pytest.mark.parametrize("operator", sorted({*IN_PLACE, *IN_PLACE.values()}))
def test_torch_has_the_operators_of_the_table(operator: str) -> None:
    found = operator_named(operator.removeprefix("aten."))
    assert found is not None
    assert found._schema.is_mutable == (operator in IN_PLACE.values())


@golden("cases/scatters.txt")
def test_lines(text: str) -> str:
    return print_lines(scatter_in_place(parse_lines(text)))
