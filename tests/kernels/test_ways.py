"""Each way to do the work of a reduction gives its results; those that measuring chooses among are
told of, and options say whether it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.ir.lines import CallChoice, DefineChoice
from fusewright.native import CallPlan
from fusewright.runtime import choices
from tests.kernels.ways_programs import PROGRAMS, check, compiled
from tests.threads import with_threads

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    """How many there are decides which ways there are."""
    with with_threads(4):
        yield


@pytest.mark.parametrize("way", ["0", "1", "2", "off"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_gives_the_results(name: str, way: str) -> None:
    graph = compiled(name, way)
    assert isinstance(graph.run, CallPlan)
    assert not any(isinstance(line, DefineChoice) for line in graph.record.lines)
    check(name, graph)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_call_decides(name: str) -> None:
    graph = compiled(name, "on")
    assert all(not choice.decisions for choice in graph.record.choices)
    for _ in range(3):
        check(name, graph)
    for choice in graph.record.choices:
        (decision,) = choice.decisions.values()
        assert decision.source == "timed" and len(choice.alternatives) >= 2
    if name != "short rows":
        assert "split" in {name for c in graph.record.choices for name in c.alternatives}


def lines_of(**options: Any) -> list[Any]:
    program = fusewright.compile(lambda x: x.sum(-1), options={"strict": True, **options})
    x = torch.randn(3, 8192)
    torch.testing.assert_close(program(x), x.sum(-1), rtol=1e-4, atol=1e-4)
    (compilation,) = fusewright.api.compilations(program)
    return list(compilation.compiled.record.lines)


def test_a_later_compile_knows_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the choice is left in the code; without the cache, or with a table, it is made
    anew.
    """
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choices, "time_runs", lambda runs, device: [2.0, 1.0, 3.0][: len(runs)])
    assert any(isinstance(line, CallChoice) for line in lines_of())
    again = lines_of()
    assert not any(isinstance(line, CallChoice | DefineChoice) for line in again)
    launched = [line.launch.kernel for line in again if hasattr(line, "launch")]
    assert len(launched) == 2 and all("split" in kernel for kernel in launched)
    assert any(isinstance(line, CallChoice) for line in lines_of(multi_kernel_cache=False))
    table = tmp_path / "table.csv"
    assert any(isinstance(line, CallChoice) for line in lines_of(multi_kernel_table=str(table)))
    assert len(table.read_text().splitlines()) == 2


def test_nothing_is_timed_where_results_have_to_be_deterministic() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert not any(isinstance(line, CallChoice) for line in lines_of(multi_kernel="on"))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("value", ["of", "-1", "1.5", ""])
def test_values_of_the_option(value: str) -> None:
    with pytest.raises(ValueError, match="one of off, auto, on, or the number of an alternative"):
        fusewright.compile(lambda x: x, options={"multi_kernel": value})


def test_in_conditions_loops_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of a condition have choices of their own, made when they are first run; so has
    the backward half.
    """

    def program(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x, w: (x * w).sum(-1).exp().sum(),
            lambda x, w: (x * w).amax(-1).sum(),
            (x, w),
        )

    options = {"strict": True, "multi_kernel_cache": False}
    both = fusewright.compile(program, options=options)
    x, w = torch.randn(4, 8192), torch.randn(8192) / 1000
    for sign in (1, -1, 1):
        argument = (x.abs() if sign > 0 else -x.abs()).requires_grad_()
        wanted = argument.detach().clone().requires_grad_()
        result, expected = both(argument, w), program(wanted, w)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
        result.backward()
        expected.backward()
        torch.testing.assert_close(argument.grad, wanted.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["on", "0", "1"])
@pytest.mark.parametrize("name", ["sums", "centred", "two groups of one structure"])
def test_dynamic_sizes_have_decisions_by_class(name: str, way: str) -> None:
    """Whether there is a choice is seen by the sizes of the first call; between which powers of two
    those of a call lie, then tells which decision is its.
    """
    function = DYNAMIC[name]
    options = {"strict": True, "multi_kernel": way, "multi_kernel_cache": False}
    program = fusewright.compile(function, dynamic=True, options=options)
    sizes = ((3, 8192), (7, 33000), (3, 8193), (3, 9000), (300, 70), (2, 9), (5, 32767))
    for rows, columns in sizes:
        x = torch.randn(rows, columns)
        both = x, x.t().contiguous()
        torch.testing.assert_close(program(*both), function(*both), rtol=1e-4, atol=1e-3)
    (compilation,) = fusewright.api.compilations(program)
    record = compilation.compiled.record
    if way == "on":
        own = [*sizes, *((b, a) for a, b in sizes if name.startswith("two"))]
        classes = {choices.size_class(size) for size in own}
        assert "split" in {name for choice in record.choices for name in choice.alternatives}
        assert {len(choice.decisions) for choice in record.choices} == {len(classes)}
    elif way == "1":
        assert any("split" in launch.kernel for launch in record.launches)


DYNAMIC: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sums": lambda x, y: x.sum(-1) * 2,
    "centred": lambda x, y: (x - x.mean(-1, keepdim=True)).amax(-1),
    "two groups of one structure": lambda x, y: (y.exp().sum(-1), x.exp().sum(-1)),
}


REDUCTIONS = {
    "sum": lambda x: x.sum(-1),
    "amax": lambda x: x.amax(-1),
    "any": lambda x: (x > 1).any(-1),
    "softmax": lambda x: torch.softmax(x.float(), -1),
    "columns": lambda x: x.t().contiguous().sum(0),
    "steps": lambda x: x[:, ::2].amin(-1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_chunks_of_every_type_and_of_special_values(name: str, dtype: torch.dtype) -> None:
    function = REDUCTIONS[name]
    x = (torch.randn(5, 16380) * 2).to(dtype)
    if dtype.is_floating_point:
        x[0, 7], x[1, 9000], x[2, 1] = float("nan"), float("inf"), float("-inf")
        x[3] = 0.0
    options = {"strict": True, "multi_kernel": "1", "multi_kernel_cache": False}
    found = fusewright.compile(function, options=options)(x)
    near = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, function(x), rtol=near, atol=20 * near, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "length", "threads", "names"),
    [
        (3, 8192, 2, {"whole", "split"}),  # One thread would have twice the other's work.
        (4, 8192, 2, set()),  # Each has as many: whole.
        (4, 8192, 1, set()),
        (3, 1 << 17, 2, set()),  # By rule in chunks, for the sake of rounding.
        (25, 16384, 16, {"whole", "split"}),
        (100, 16384, 16, set()),
    ],
)
def test_what_is_open_depends_on_rows_and_threads(
    rows: int, length: int, threads: int, names: set[str]
) -> None:
    torch.set_num_threads(threads)
    program = fusewright.compile(lambda x: x.sum(-1), options={"strict": True})
    program(torch.zeros(rows, length))
    (compilation,) = fusewright.api.compilations(program)
    found = compilation.compiled.record
    assert {name for choice in found.choices for name in choice.alternatives} == names
    assert len(found.launches) == (2 if length > 1 << 16 else 1)
