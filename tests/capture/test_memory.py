"""Inputs of graphs that write: which of them share memory is part of what was captured."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.capture.guards import Guard, GuardKind, GuardSet, build_guards, placements
from fusewright.capture.sources import LocalSource
from fusewright.capture.trace import trace
from fusewright.fake.graph_writes import node_may_write
from tests.capture.agreement import assert_same

Pair = tuple[torch.Tensor, torch.Tensor]


def base() -> torch.Tensor:
    return torch.arange(8.0)


def shifted(storage: torch.Tensor, start: int) -> torch.Tensor:
    return storage.as_strided((4,), (1,), start)


LAYOUTS: dict[str, Callable[[], Pair]] = {
    "apart": lambda: (base()[:4], base()[:4]),
    "the same view": lambda: (lambda b: (b[:4], shifted(b, 0)))(base()),
    "overlapping": lambda: (lambda b: (b[:4], shifted(b, 2)))(base()),
    "overlapping before": lambda: (lambda b: (shifted(b, 2), b[:4]))(base()),
    "halves": lambda: (lambda b: (b[:4], shifted(b, 4)))(base()),
    "other part": lambda: (base()[:4], shifted(base(), 4)),
}


def add_then_double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


def set_item(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = y + 0
    y[1:3] = x[:2] * 10
    return before + x


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x += 1
    return y * 2


@pytest.mark.parametrize("function", [add_then_double, set_item, add_in_place])
@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("first", LAYOUTS)
def test_each_layout_after_each(function: Any, backend: str, first: str) -> None:
    compiled = fusewright.compile(function, backend=backend, fullgraph=True)
    for name in (first, *LAYOUTS, first):
        found, expected = LAYOUTS[name](), LAYOUTS[name]()
        assert_same(compiled(*found), function(*expected), name)
        assert_same(found, expected, name)


def pair_guards(first: torch.Tensor, second: torch.Tensor) -> GuardSet:
    placed = placements((first, second), (True, True))
    assert placed is not None
    sources = LocalSource("x"), LocalSource("y")
    guard = Guard(GuardKind.MEMORY, None, tuple(zip(sources, placed, strict=True)))
    return build_guards([guard], add_then_double.__code__)


ALIKE = {("apart", "other part"), ("other part", "apart")}
"""Where nothing is shared, an offset is no matter."""


@pytest.mark.parametrize("pair", list(itertools.product(LAYOUTS, LAYOUTS)), ids=" then ".join)
def test_guards_tell_layouts_apart(pair: tuple[str, str]) -> None:
    guards = pair_guards(*LAYOUTS[pair[0]]())
    x, y = LAYOUTS[pair[1]]()
    locals_ = {"x": x, "y": y}
    holds = pair[0] == pair[1] or pair in ALIKE
    for _ in range(3):
        assert guards.check(locals_, None) is holds
    failure = guards.explain(locals_, None)
    assert (failure is None) is holds
    if failure is not None:
        assert "memory" in str(failure) or "storage" in str(failure)


def test_storages_that_overlap() -> None:
    """NumPy's views become tensors of different storages over the same memory."""
    data = torch.arange(8.0).numpy()
    left, right = torch.from_numpy(data[:6]), torch.from_numpy(data[2:])
    assert placements((left, right), (True, True)) is None
    guards = pair_guards(torch.ones(6), torch.ones(6))
    assert guards.check({"x": torch.ones(6), "y": torch.ones(6)}, None)
    assert not guards.check({"x": left, "y": right}, None)


def test_tensors_without_elements_share_nothing() -> None:
    empty = torch.empty(0, 3)
    guards = pair_guards(empty, empty.view(3, 0))
    assert guards.check({"x": empty, "y": empty}, None)
    assert guards.check({"x": empty, "y": torch.empty(0)}, None)
    shared = torch.ones(4)
    assert guards.check({"x": shared, "y": shared[:0]}, None)
    assert not guards.check({"x": shared, "y": shared.view(2, 2)}, None)
    meta = torch.empty(4, device="meta")
    assert pair_guards(meta, meta).check({"x": meta, "y": meta}, None)


def test_sparse_inputs_are_not_compared() -> None:
    def scale(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return y + x

    compiled = fusewright.compile(scale, backend="eager")
    sparse = torch.eye(3).to_sparse()
    captures = []
    for _ in range(3):
        found, expected = torch.ones(3, 3), torch.ones(3, 3)
        assert_same(compiled(sparse, found), scale(sparse, expected), "sparse")
        assert_same(found, expected, "sparse")
        captures.append(compiled.compiler.capture_count)
    assert captures[0] == captures[-1]


def test_a_graph_that_only_reads_has_no_such_guard() -> None:
    compiled = fusewright.compile(lambda x, y: x * y + x, backend="eager", fullgraph=True)
    b = base()
    for pair in ((b, base()), (b, b.view(8))):
        assert_same(compiled(*pair), pair[0] * pair[1] + pair[0], "reads")
    assert compiled.compiler.capture_count == 1


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_inputs_that_are_only_read_may_share_memory(backend: str) -> None:
    def scatter(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        x.index_add_(0, rows, columns + 1.0)
        return columns * 2

    compiled = fusewright.compile(scatter, backend=backend, fullgraph=True)
    indices = torch.arange(12).remainder(8)
    captures = []
    for rows, columns in (
        (indices[:4], indices[4:8]),
        (indices[4:8], indices[:4]),
        (indices[:4], indices[:4].view(4)),
        (indices[:4].clone(), indices[2:6]),
        (indices[2:6], indices[3:7]),
    ):
        found, expected = base(), base()
        assert_same(compiled(found, rows, columns), scatter(expected, rows, columns), "reads")
        assert_same(found, expected, "written")
        captures.append(compiled.compiler.capture_count)
    assert captures[-1] == 1
    found, expected = base(), base()
    rows = torch.arange(8)
    assert_same(compiled(found, rows, found), scatter(expected, rows, expected), "shared")
    assert_same(found, expected, "shared")
    assert compiled.compiler.capture_count == 2


def test_a_module_whose_statistics_are_written() -> None:
    norm = torch.nn.BatchNorm1d(4)
    compiled = fusewright.compile(norm, backend="eager", fullgraph=True)
    expected = torch.nn.BatchNorm1d(4)
    for _ in range(4):
        x = torch.randn(5, 4)
        assert_same(compiled(x), expected(x), "batch norm")
    assert len(fusewright.api.compilations(compiled)) == 1
    assert_same(dict(norm.named_buffers()), dict(expected.named_buffers()), "statistics")
    norm.running_var = norm.running_mean.view(4)
    expected.running_var = expected.running_mean.view(4)
    x = torch.randn(5, 4)
    assert_same(compiled(x), expected(x), "shared statistics")
    assert len(fusewright.api.compilations(compiled)) == 2


functional = torch.nn.functional

WRITES: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    "method": (lambda x: x.add_(1), True),
    "operator": (lambda x: x.__iadd__(1), True),
    "item": (lambda x: x.__setitem__(0, 1), True),
    "operator in place": (lambda x: operator.iadd(x, 1), True),
    "or in place": (lambda x: operator.ior(x > 0, x > 1), True),
    "or": (lambda x: (x > 0) | (x > 1), False),
    "function": (lambda x: torch.relu_(x), True),
    "out": (lambda x: torch.add(x, 1, out=x), True),
    "in place by name": (lambda x: functional.relu(x, inplace=True), True),
    "in place by position": (lambda x: functional.relu(x, True), True),
    "not in place": (lambda x: functional.relu(x, False), False),
    "inverted": (lambda x: ~(x > 0), False),
    "attribute": (lambda x: x.T * 2, False),
    "private method": (lambda x: x.__add__(1), False),
    "training": (
        lambda x: functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
        True,
    ),
    "evaluating": (lambda x: functional.batch_norm(x, torch.zeros(3), torch.ones(3)), False),
    "reads": (lambda x: torch.softmax(x * 2 - 1, -1).sum(), False),
    "operator of torch": (lambda x: torch.ops.aten.add_.Tensor(x, x), True),
    "reading operator of torch": (lambda x: torch.ops.aten.add.Tensor(x, x), False),
}


@pytest.mark.parametrize("name", WRITES)
def test_which_graphs_may_write(name: str) -> None:
    function, writes = WRITES[name]
    graph = trace(function, torch.ones(2, 3)).graph
    assert any(map(node_may_write, graph.nodes)) is writes, graph
