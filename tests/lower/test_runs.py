"""Rows that are added up in the order of the rows that they go to, as on a GPU: programs that were
lowered for one are evaluated here, and their kernels interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import torch

from fusewright.context import CompileContext
from fusewright.ir.group import Group
from fusewright.ir.program import CallOperator, Program
from fusewright.ir.reference import Evaluation, evaluate
from fusewright.kernels.triton import LIMITS, TritonKernel, configuration_of
from fusewright.kernels.triton.early_ends import ends_early
from fusewright.lower import runs
from fusewright.schedule import schedule
from tests.kernels.triton.launching import run_group, write_group
from tests.lower.support import program_on_gpu as program_of

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "FEWEST_ROWS", 1)
    monkeypatch.setattr(runs, "MOST_ROWS_COMPARED", 4)
    monkeypatch.setattr(runs, "BLOCK", 8)


def interpreted(
    program: Program,
    inputs: Sequence[torch.Tensor],
    folder: Path,
    sizes: dict[str, int] | None = None,
) -> list[Any]:
    """What the kernels of a program compute; library calls are torch's."""
    sizes = sizes or {}
    evaluation = Evaluation(sizes, False, torch.device("cpu"))
    for buffer, tensor in zip(program.inputs, inputs, strict=True):
        evaluation.adopt(buffer, tensor)

    def launch(kernel: TritonKernel, count: int, arguments: Sequence[Any]) -> None:
        interpreter.run_kernel(kernel, folder, count, arguments)

    for work in schedule(program, CompileContext(), lambda device: LIMITS).works:
        if isinstance(work, Group):
            for buffer in work.writes:
                evaluation.allocate(buffer)
            run_group(work, evaluation.memory, launch, sizes, None)
        else:
            evaluation.execute(work, {})
    return [evaluation.operand(output) for output in program.outputs]


def check(
    function: Callable[..., Any], folder: Path, *tensors: torch.Tensor, externs: list[str]
) -> None:
    """A program's evaluation and its kernels give what eager gives, and call so much."""
    program = program_of(function, *tensors)
    calls = [s.operator for s in program.statements if isinstance(s, CallOperator)]
    assert calls == externs
    wanted = function(*tensors)
    for found in (*evaluate(program, list(tensors)), *interpreted(program, tensors, folder)):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


SORTED = ["aten.sort.stable", "aten.searchsorted.Tensor"]

NUMBERS = {
    "spread": lambda: torch.randint(0, 20, (50,)),
    "mostly one": lambda: torch.where(torch.rand(50) < 0.9, 7, torch.randint(0, 20, (50,))),
    "one": lambda: torch.full((50,), 19),
    "each once": lambda: torch.randperm(50) % 20,
    "of two dimensions": lambda: torch.randint(0, 20, (5, 11)),
    "whole blocks": lambda: torch.arange(48) // 16,
    "int32": lambda: torch.randint(0, 20, (50,), dtype=torch.int32),
}
"""Indices below 20."""


def gradient(padding: int = -1, count: int = 20) -> Callable[..., Any]:
    return lambda rows, numbers: aten.embedding_dense_backward(rows, numbers, count, padding, False)


@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_of_embeddings(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    numbers = NUMBERS[name]()
    rows = torch.randn(*numbers.shape, 6)
    check(gradient(), tmp_path, rows, numbers, externs=SORTED)
    check(gradient(padding=7), tmp_path, rows, numbers, externs=SORTED)


@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_of_large_tables(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    numbers = NUMBERS[name]() * 10
    rows = torch.randn(*numbers.shape, 6)
    check(gradient(count=240), tmp_path, rows, numbers, externs=SORTED)
    check(gradient(padding=70, count=240), tmp_path, rows, numbers, externs=SORTED)


def test_few_rows_of_a_table_are_not_sorted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows, numbers = torch.randn(30, 5), torch.randint(0, 3, (30,))
    check(gradient(count=3), tmp_path, rows, numbers, externs=[])
    check(gradient(padding=1, count=3), tmp_path, rows, numbers, externs=[])


def test_any_number_of_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    example = torch.randn(50, 6), torch.randint(0, 20, (50,))
    program = program_of(gradient(), *example, is_dynamic=True)
    (size,) = program.sizes
    for count in (1, 7, 8, 61):
        tensors = torch.randn(count, 6), torch.randint(0, 3, (count,))
        (found,) = interpreted(program, tensors, tmp_path, {size.symbol.name: count})
        torch.testing.assert_close(found, gradient()(*tensors), rtol=1e-5, atol=1e-5)


def test_a_view_is_added_up_where_it_lies(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows, numbers = torch.randn(6, 4, 9).permute(1, 2, 0), torch.randint(0, 20, (4, 9))
    check(gradient(), tmp_path, rows, numbers, externs=SORTED)


def test_sums_of_half_types_are_rounded_once() -> None:
    rows = torch.full((600, 4), 1.0, dtype=torch.bfloat16)
    program = program_of(gradient(), rows, torch.zeros(600, dtype=torch.int64))
    (found,) = evaluate(program, [rows, torch.zeros(600, dtype=torch.int64)])
    assert found.dtype is torch.bfloat16
    assert found[0].tolist() == [600.0] * 4


PUTS = {
    "rows": lambda x, y, i: x.index_put((i,), y, accumulate=True),
    "elements": lambda x, y, i: x.index_put((i, i % 6), y.select(1, 0), accumulate=True),
    "negative": lambda x, y, i: x.index_put((i - 20,), y, accumulate=True),
    "a row for all": lambda x, y, i: x.index_put((i,), y.select(0, 0), accumulate=True),
    "in place": lambda x, y, i: x.clone().index_put_((i,), y, accumulate=True),
}


@pytest.mark.parametrize("name", PUTS)
def test_puts_that_add(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y, i = torch.randn(20, 6), torch.randn(50, 6), torch.randint(0, 20, (50,))
    check(PUTS[name], tmp_path, x, y, i, externs=SORTED)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, i: x.index_put((i,), y),
        lambda x, y, i: aten.index_put(x, [None, i], y.select(1, 0), True),
    ],
)
def test_other_puts_are_the_librarys(function: Callable[..., Any]) -> None:
    program = program_of(function, torch.zeros(20, 6), torch.zeros(50, 6), torch.zeros(50).long())
    calls = [s.operator for s in program.statements if isinstance(s, CallOperator)]
    assert calls == ["aten.index_put.default"]


def test_loops_over_runs_end_where_the_runs_do() -> None:
    rows, numbers = torch.zeros(50, 6), torch.zeros(50, dtype=torch.int64)
    program = program_of(gradient(), rows, numbers)
    works = schedule(program, CompileContext(), lambda device: LIMITS).works
    groups = [work for work in works if isinstance(work, Group)]
    assert [ends_early(group) for group in groups] == [False, False, True, True]
    assert "for start in range(0, rend, RBLOCK):" in write_group(groups[-1]).source


@pytest.mark.parametrize(
    ("dtype", "width", "block", "warps"),
    [
        (torch.bfloat16, 1024, 1024, 4),
        (torch.bfloat16, 2048, 1024, 4),
        (torch.float32, 2048, 512, 4),
        (torch.float32, 768, 256, 2),
        (torch.bfloat16, 768, 256, 1),
        (torch.float32, 1600, 256, 2),
        (torch.float32, 8, 8, 1),
    ],
)
def test_threads_of_a_run_lie_beside_each_other(
    dtype: torch.dtype, width: int, block: int, warps: int
) -> None:
    """None reads another place of a run than the others: adding up what they read takes shared
    memory, ten times as long.
    """
    rows, numbers = torch.zeros(50, width, dtype=dtype), torch.zeros(50, dtype=torch.int64)
    program = program_of(gradient(), rows, numbers)
    *_, group = schedule(program, CompileContext(), lambda device: LIMITS).works
    assert isinstance(group, Group) and ends_early(group)
    configuration = configuration_of(group)
    (axis,) = configuration.tiling.outer
    assert (axis.block, configuration.warps) == (block, warps)
    assert block * dtype.itemsize <= 32 * warps * 16


def test_wide_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows, numbers = torch.randn(30, 700), torch.randint(0, 5, (30,))
    check(gradient(count=5), tmp_path, rows, numbers, externs=SORTED)
