"""Plans that processes keep: a later one is given what it would have made, or makes it."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import runpy
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from torch._higher_order_ops import scan, while_loop

import fusewright
from fusewright import generation, kept_plans, pipeline
from fusewright.context import CompileContext
from fusewright.errors import WrongLayout
from fusewright.ir.text import print_schedule
from fusewright.packages import caches
from fusewright.runtime import eager_kernels
from fusewright.runtime.choices import Decision
from fusewright.runtime.compiled import Record
from fusewright.runtime.kept_files import KeptFiles
from fusewright.wrapper import choices
from tests.threads import with_threads

SOURCE = Path(fusewright.__file__).parents[1]
STAGES = ("lower", "schedule", "kernels", "generation")

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is used and empty."""
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSEWRIGHT_GRAPH_CACHE")
    (tmp_path / "program.py").write_text(PROCESS)
    return tmp_path / "cache"


def compiled(program: Program, *inputs: Any, **options: Any) -> tuple[Any, list[Record]]:
    """The result of a program that is compiled anew, and the records of its graphs' halves."""
    function = fusewright.compile(program, options={"strict": True, **options})
    result = function(*inputs)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result = torch.autograd.grad(result.sum(), [x for x in inputs if x.requires_grad])
    explanation = fusewright.explain(function).history
    assert explanation is not None
    records = [record for each in explanation.compilations for record in each.records]
    assert str(explanation).count("plan on disk:") >= min(1, len(records))
    return result, records


def outcomes(records: list[Record]) -> list[str]:
    return [record.kept for record in records]


# -- Programs --------------------------------------------------------------------------------------

WEIGHT = torch.linspace(-1, 1, 48).reshape(8, 6)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(x.exp(), (6,)).relu()


def product(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.gelu(x @ WEIGHT.t()).softmax(-1)


def writes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.clone()
    y.mul_(2).add_(1)
    return y, y.t()


def shares(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.t(), x.cos(), x.cos()[1:], x


def of_constants(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor([1.0, -0.0, float("inf"), 4.0, 5.0, float("nan")])


def numbers(x: torch.Tensor) -> tuple[torch.Tensor, Any, Any]:
    return x.clamp(-0.5, float("inf")), 3, None


def index(x: torch.Tensor) -> torch.Tensor:
    return x[torch.tensor([3, 0, 0])].cumsum(0) + torch.arange(6)


def sort(x: torch.Tensor) -> Any:
    return torch.sort(x, stable=True)


def empty(x: torch.Tensor) -> torch.Tensor:
    return x[:0].sin().sum()


def complex_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.complex(x, x + 1).conj() * 1j)


PROGRAMS = (
    layer_norm, product, writes, shares, of_constants, numbers, index, sort, empty, complex_numbers,
)  # fmt: skip


def input_tensor() -> torch.Tensor:
    return torch.linspace(-2, 3, 24).reshape(4, 6)


def same(result: Any, other: Any) -> None:
    torch.testing.assert_close(result, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_plan_is_found_and_does_the_same(program: Program) -> None:
    first, made = compiled(program, input_tensor())
    second, found = compiled(program, input_tensor())
    same(first, second)
    torch.testing.assert_close(second, program(input_tensor()), equal_nan=True)
    assert all(outcome.startswith("new: no graph") for outcome in outcomes(made))
    assert outcomes(found) == [kept_plans.FOUND] * len(made)
    for old, new in zip(made, found, strict=True):
        assert_told_alike(old, new)


def assert_told_alike(old: Record, new: Record) -> None:
    """What reports read of two records is the same."""
    for name in (*kept_plans.KEPT_FACTS, "lines", "notes", "in_python_because"):
        assert getattr(old, name) == getattr(new, name), name
    assert old.launch_count == new.launch_count
    assert print_schedule(old.schedule, origins=True) == print_schedule(new.schedule, origins=True)
    assert old.program.hints == new.program.hints
    origins = [[line.origins for line in lines_with_origins(record)] for record in (old, new)]
    assert origins[0] == origins[1]


def lines_with_origins(record: Record) -> Iterator[Any]:
    return (line for line in record.lines if hasattr(line, "origins"))


def test_modules_say_the_same(folder: Path) -> None:
    compiled(layer_norm, input_tensor())
    (before,) = {path: path.read_text() for path in folder.glob("fusewright_*.py")}.items()
    before[0].unlink()
    compiled(layer_norm, input_tensor())
    (after,) = {path: path.read_text() for path in folder.glob("fusewright_*.py")}.items()
    assert before == after


@pytest.mark.parametrize("program", [layer_norm, product])
def test_both_halves_of_a_training_step(program: Program) -> None:
    first, made = compiled(program, input_tensor().requires_grad_())
    second, found = compiled(program, input_tensor().requires_grad_())
    assert outcomes(made) == ["new: no graph that begins here was kept"] * 2
    assert outcomes(found) == [kept_plans.FOUND] * 2
    same(first, second)
    for old, new in zip(made, found, strict=True):
        assert_told_alike(old, new)


def test_other_weights_of_the_same_module_use_one_plan() -> None:
    torch.manual_seed(0)
    for number in range(3):
        module = nn.Sequential(nn.Linear(6, 5), nn.GELU()).requires_grad_(False)
        result, records = compiled(module, input_tensor())
        torch.testing.assert_close(result, module(input_tensor()))
        assert (outcomes(records) == [kept_plans.FOUND]) == (number > 0)


# -- The same program elsewhere --------------------------------------------------------------------

MOVED = """
import torch

WEIGHT = torch.linspace(-1, 1, 48).reshape(8, 6)

def f(x):
    y = torch.nn.functional.layer_norm(x.exp(), (6,))
    z = (y @ WEIGHT.t()).relu(); w = z.cos()
    values, indices = torch.sort(w, stable=True)
    count = values.sum(0)
    return count.cumsum(0) + 1, indices

def of_any_size(x):
    first, second = x.chunk(2)
    return (first *
            second).softmax(-1)

def wrong(x):
    return (x - 9).log()
"""


def moved_to(file: Path, lines_before: int, name: str) -> Program:
    """A function of `MOVED`, from a file of its own."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("#\n" * lines_before + MOVED)
    function: Program = runpy.run_path(str(file))[name]
    return function


@pytest.mark.parametrize("name", ["f", "of_any_size"])
def test_a_program_in_another_folder_has_the_plan_with_its_own_lines(
    tmp_path: Path, folder: Path, name: str
) -> None:
    options = {"dynamic": True} if name == "of_any_size" else {}
    modules: list[str] = []
    told: list[Record] = []
    for file, cache in (("a/first.py", True), ("b/second.py", True), ("b/second.py", False)):
        program = moved_to(tmp_path / file, 7 * file.count("second"), name)
        function = fusewright.compile(
            program, options={"strict": True, "graph_cache": cache}, **options
        )
        function(input_tensor())
        history = fusewright.explain(function).history
        assert history is not None
        ((record,),) = [each.records for each in history.compilations]
        (path,) = folder.glob("fusewright_*.py")
        modules.append(path.read_text())
        path.unlink()
        told.append(record)
    assert [record.kept[:4] for record in told] == ["new:", kept_plans.FOUND[:4], ""]
    assert modules[0] != modules[1] == modules[2]
    assert "first.py" in modules[0] and "first.py" not in modules[1]
    assert_told_alike(told[1], told[2])


def test_a_moved_program_that_is_wrong_names_its_new_line(tmp_path: Path) -> None:
    for file, lines_before in (("first.py", 0), ("second.py", 9)):
        program = moved_to(tmp_path / file, lines_before, "wrong")
        line = (tmp_path / file).read_text().splitlines().index("    return (x - 9).log()") + 1
        function = fusewright.compile(program, options={"strict": True, "check_nan": True})
        with pytest.raises(fusewright.errors.NanFound, match=f"{file}:{line}  return"):
            function(input_tensor())


def test_operators_on_other_lines_are_another_plan(tmp_path: Path) -> None:
    """Two operators of one kind on one line are one origin of a kernel."""
    for file, break_, expected in (("a.py", ";", "new: no graph"), ("b.py", "\n   ", "new: ")):
        (tmp_path / file).write_text(f"def f(x):\n    y = x.sin(){break_} return y.sin()\n")
        _, (record,) = compiled(runpy.run_path(str(tmp_path / file))["f"], input_tensor())
        assert record.kept.startswith(expected)


# -- Sizes that vary -------------------------------------------------------------------------------


def rows(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(x, (6,)).sigmoid()


def halves(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2)
    return first * second


def flattened(x: torch.Tensor) -> torch.Tensor:
    return x.t().reshape(-1).view(2, -1).sum(0)


def joined(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, x[1:], x.new_zeros(3, 6))).softmax(0) @ WEIGHT.t()


def chosen(x: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0] > 0].cumsum(0)


def attention(x: torch.Tensor) -> torch.Tensor:
    y = x.expand(2, *x.shape)
    return nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)


DYNAMIC = (rows, halves, flattened, joined, chosen, attention)


@pytest.mark.parametrize("program", DYNAMIC, ids=lambda program: program.__name__)
def test_sizes_that_vary(program: Program) -> None:
    told = []
    for number in range(2):
        function = fusewright.compile(program, dynamic=True, options={"strict": True})
        for count in (4, 10, 2, 6):
            x = torch.linspace(-1, 2, 6 * count).reshape(count, 6)
            torch.testing.assert_close(function(x), program(x))
        history = fusewright.explain(function).history
        assert history is not None
        guards = [(guard.kind, guard.expression, guard.expected) for guard in history.guards]
        records = [record for each in history.compilations for record in each.records]
        told.append((guards, [record.schedule.program.sizes for record in records]))
        if number:
            assert outcomes(records) == [kept_plans.FOUND] * len(records)
    assert told[0] == told[1]


def real_numbers(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor + factor**2 if factor < 3 else x.sin()


def test_real_numbers_that_vary() -> None:
    for number in range(2):
        function = fusewright.compile(real_numbers, dynamic=True, options={"strict": True})
        for factor in (1.5, 2.5, -3.5, 4.5, -0.0):
            x = torch.ones(3)
            torch.testing.assert_close(function(x, factor), real_numbers(x, factor))
        history = fusewright.explain(function).history
        assert history is not None
        several = [graph.kept for graph in history.graphs if graph.launches]
        assert several and all((kept == kept_plans.FOUND) == bool(number) for kept in several)


def test_training_for_any_size() -> None:
    found = []
    torch.manual_seed(0)
    for _ in range(2):
        function = fusewright.compile(rows, dynamic=True, options={"strict": True})
        for count in (4, 9):
            x = torch.randn(count, 6, dtype=torch.float64, requires_grad=True)
            torch.testing.assert_close(
                torch.autograd.grad(function(x).square().sum(), x),
                torch.autograd.grad(rows(x).square().sum(), x),
            )
        history = fusewright.explain(function).history
        assert history is not None
        records = [record for each in history.compilations for record in each.records]
        found.append(outcomes(records))
    assert found[1] == [kept_plans.FOUND] * len(found[0])


def test_assumptions_of_stages_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted ones: lowering asks whether the first size is more than 3, and not equal to 7."""
    real = generation.lower

    def asking(graph: Any, *given: Any, **options: Any) -> Any:
        size = graph.placeholders[-1].meta["val"].shape[0]
        assert (size > 3) and (size != 7)
        return real(graph, *given, **options)

    monkeypatch.setattr(generation, "lower", asking)
    guards = []
    for _ in range(2):
        function = fusewright.compile(rows, dynamic=True, options={"strict": True})
        function(torch.ones(5, 6))
        history = fusewright.explain(function).history
        assert history is not None
        guards.append({(guard.kind, guard.expression, guard.expected) for guard in history.guards})
        (graph,) = history.graphs
    assert graph.kept == kept_plans.FOUND
    assert guards[0] == guards[1]
    monkeypatch.setattr(generation, "lower", real)
    before = len(kept_plans.PLANS.keys_on_disk())
    for count in (3, 7):  # The guards refuse these, so that each is compiled anew.
        torch.testing.assert_close(function(torch.ones(count, 6)), rows(torch.ones(count, 6)))
    assert len(kept_plans.PLANS.keys_on_disk()) > before


# -- What else decides -----------------------------------------------------------------------------


def test_frozen_weights_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    results = []
    for number in range(2):
        if number:  # No stage has a part in it any more.
            monkeypatch.setattr(pipeline, "_compile_new", None)
        module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval().requires_grad_(False)
        x = torch.ones(2, 3, 4, 4)
        result, records = compiled(module, x, freeze=True)
        torch.testing.assert_close(result, module(x))
        assert (outcomes(records) == [kept_plans.FOUND]) == (number > 0)
        results.append(result)
    assert not torch.equal(*results)


def test_another_number_of_threads_is_another_plan() -> None:
    compiled(layer_norm, input_tensor())
    before = torch.get_num_threads()
    with with_threads(before + 1):
        _, records = compiled(layer_norm, input_tensor())
    assert outcomes(records) == [
        f"new: the nearest that was kept differs in modes (threads: {before}, now {before + 1})"
    ]


def test_a_size_or_an_option_that_differs_is_told() -> None:
    compiled(layer_norm, input_tensor())
    _, (record,) = compiled(layer_norm, input_tensor()[:3].clone())
    assert record.kept == (
        "new: the nearest that was kept differs in the sizes and types of its tensors"
    )
    _, (record,) = compiled(layer_norm, input_tensor()[:3].clone(), expression_limit=9)
    assert record.kept == (
        "new: the nearest that was kept differs in options (expression_limit: 64, now 9)"
    )
    assert record.kept in caches.info() and __file__ in caches.info()
    kept_plans.PLANS.clear()
    _, (record,) = compiled(layer_norm, input_tensor())
    assert record.kept == "new: it was removed, to make room"


def test_a_kept_kernel_that_cannot_be_compiled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (record,) = compiled(layer_norm, input_tensor())
    for kernel in record.kernels:
        monkeypatch.setitem(eager_kernels._REASONS, kernel.key, "the driver refuses it")
    with pytest.raises(fusewright.errors.FusewrightError, match=f"refuses it(?s:.*){__file__}"):
        compiled(layer_norm, input_tensor())


# -- Conditions and loops --------------------------------------------------------------------------


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(
        x.sum() > 0,
        lambda x: x.sin() @ WEIGHT.t() + torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]),
        lambda x: torch.cond(x[0, 0] > 0, lambda x: x.cos(), lambda x: x * 2, (x,)) @ WEIGHT.t(),
        (x,),
    )


def steps(x: torch.Tensor) -> Any:
    counted = while_loop(
        lambda n, y: n < 3, lambda n, y: (n + 1, y * torch.tensor(1.5)), (torch.tensor(0), x)
    )
    return *counted, *scan(lambda c, a: (c + a, (c * a).sin()), x.new_zeros(6), x)


def running(x: torch.Tensor) -> torch.Tensor:
    carry, stacked = scan(lambda c, a: ((c + a).tanh(), c * 2), x.new_zeros(6), x)
    return carry + stacked.sum(0)


@pytest.mark.parametrize("program", [branches, steps])
@pytest.mark.parametrize("dynamic", [None, True])
def test_conditions_and_loops_are_kept(program: Program, dynamic: bool | None) -> None:
    told = []
    for number in range(2):
        function = fusewright.compile(program, dynamic=dynamic, options={"strict": True})
        for shift in (0.0, -9.0, 9.0):
            x = input_tensor() + shift
            torch.testing.assert_close(function(x), program(x))
        history = fusewright.explain(function).history
        assert history is not None
        (compilation,) = history.compilations
        record, *blocks = compilation.records
        assert (record.kept == kept_plans.FOUND) == (number == 1)
        assert not any(outcomes(blocks))
        told.append(record)
    old, new = told
    assert_told_alike(old, new)
    assert len(old.subprograms) == len(new.subprograms) > 1
    for one, other in zip(old.subprograms, new.subprograms, strict=True):
        assert_told_alike(one, other)


def test_the_gradient_of_a_loop_is_kept() -> None:
    found = []
    for _ in range(2):
        x = input_tensor().requires_grad_()
        result, records = compiled(running, x)
        torch.testing.assert_close(result, torch.autograd.grad(running(x).sum(), [x]))
        found.append([kept for kept in outcomes(records) if kept])
    assert len(found[0]) == 2 and found[1] == [kept_plans.FOUND] * 2


def test_what_a_block_does_is_in_the_key() -> None:
    def chosen(x: torch.Tensor, first: Program, second: Program) -> Any:
        return torch.cond(x.sum() > 0, first, second, (x,))

    several = ((torch.sin, torch.cos), (torch.sin, torch.tan), (torch.cos, torch.sin))
    for first, second in several:
        x = input_tensor()
        result, (record, *_) = compiled(
            lambda x, f=first, g=second: chosen(x, lambda x: f(x), lambda x: g(x)), x
        )
        torch.testing.assert_close(result, first(x))
        assert record.kept.startswith("new: ")


# -- Python and kernels of the program's -----------------------------------------------------------


def test_a_gradient_that_the_library_computes() -> None:
    torch.manual_seed(0)
    for expected in ("new: ", kept_plans.FOUND):
        layer = nn.LSTM(6, 4)
        x = input_tensor().requires_grad_()
        result, records = compiled(lambda x, f=layer: f(x.sin())[0], x)
        torch.testing.assert_close(result, torch.autograd.grad(layer(x.sin())[0].sum(), [x]))
        assert len(records) == 2
        assert all(record.kept.startswith(expected) for record in records)


def formula_of(factor: float) -> Program:
    """A function whose gradient is a formula that reads values."""

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * factor if gradient.sum().item() > 0 else gradient

    return Formula.apply


def test_a_plan_runs_the_formula_of_its_own_program() -> None:
    for factor, expected in ((2.0, "new: "), (3.0, kept_plans.FOUND)):
        x = input_tensor().requires_grad_()
        formula = formula_of(factor)
        (result,), records = compiled(lambda x, f=formula: f(x) + 1, x)
        torch.testing.assert_close(result, torch.full_like(x, factor))
        assert all(record.kept.startswith(expected) for record in records)
        assert records[1].extern_calls == ("subprogram.FormulaBackward",)


def doubles() -> Any:
    @triton.jit
    def kernel(x, out, count, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        tl.store(out + place, tl.load(x + place, place < count) * 2, place < count)

    return kernel


def triples() -> Any:
    @triton.jit
    def kernel(x, out, count, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        tl.store(out + place, tl.load(x + place, place < count) * 3, place < count)

    return kernel


def adds() -> Any:
    @triton.jit
    def kernel(x, out, count, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        tl.store(x + place, tl.load(x + place, place < count) + 1, place < count)
        tl.store(out + place, tl.load(x + place, place < count), place < count)

    return kernel


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_plan_launches_the_kernel_of_its_own_program(dynamic: bool | None) -> None:
    def launched(x: torch.Tensor, kernel: Any) -> tuple[torch.Tensor, ...]:
        moved, out = x.sin(), torch.empty_like(x)
        kernel[(1,)](moved, out, x.numel(), BLOCK=32)
        return out + 1, moved

    for make, expected in (
        (doubles, "new: "),
        (triples, kept_plans.FOUND),
        (adds, "new: "),  # It writes to both.
        (adds, kept_plans.FOUND),
    ):
        kernel, x = make(), input_tensor()
        function = fusewright.compile(
            lambda x, kernel=kernel: launched(x, kernel), dynamic=dynamic, options={"strict": True}
        )
        with torch.no_grad():
            same(function(x), launched(x, kernel))
        history = fusewright.explain(function).history
        assert history is not None
        assert [graph.kept.startswith(expected) for graph in history.graphs] == [True]


# -- Graphs of which no plan is kept ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"verify": True}, ""),
        ({"graph_cache": False}, ""),
        ({"tune": True}, "not kept under the option tune"),
    ],
)
def test_options_under_which_nothing_is_kept(options: dict[str, Any], reason: str) -> None:
    function = fusewright.compile(layer_norm, options={"strict": True, **options})
    function(input_tensor())
    history = fusewright.explain(function).history
    assert history is not None
    assert [graph.kept for graph in history.graphs] == [reason]
    assert not kept_plans.PLANS.keys_on_disk()


def test_logged_stages_run(caplog: pytest.LogCaptureFixture) -> None:
    compiled(layer_norm, input_tensor())
    with caplog.at_level(logging.DEBUG, logger="fusewright.loops"):
        _, (record,) = compiled(layer_norm, input_tensor())
    assert record.kept == "not kept: what the stages make is logged"
    assert any("group" in message for message in caplog.messages)


def test_a_plan_is_kept_once_its_choices_are_made() -> None:
    def row_sums(x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1) * 2 + 1

    x = torch.linspace(-1, 1, 3 * 8192).reshape(3, 8192)
    with with_threads(2):  # Which cannot share three rows evenly.
        _, (record,) = compiled(row_sums, x, multi_kernel="on")
        assert record.choices
        assert record.kept == "not kept: measuring has yet to choose among kernels"
        for expected in ("new: ", kept_plans.FOUND):  # A number is a decision.
            result, (record,) = compiled(row_sums, x, multi_kernel="1")
            assert record.kept.startswith(expected)
            assert record.choices[0].decisions[0].source == "forced"
            torch.testing.assert_close(result, row_sums(x), rtol=1e-4, atol=1e-4)


@torch.library.custom_op("kept_plans::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """An operator whose result does not lie as its fake says."""
    return x.sin().t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_copy_is_refused_under_strict_alone() -> None:
    def times_two(x: torch.Tensor) -> torch.Tensor:
        return turned(x) * 2

    x = input_tensor()
    for strict in (True, False, True):
        function = fusewright.compile(times_two, options={"strict": strict})
        if strict:
            with pytest.raises(WrongLayout, match="would be copied at each call"):
                function(x)
        else:
            torch.testing.assert_close(function(x), x.sin() * 2)


def test_who_wants_no_earlier_choice_is_given_no_plan_that_holds_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decision = Decision(winner=1, seconds=(2.0, 1.0), source="kept")
    monkeypatch.setattr(choices, "decision_of_earlier_process", lambda *_: decision)
    x = torch.linspace(-1, 1, 3 * 8192).reshape(3, 8192)
    with with_threads(2):
        for is_cached, outcome in ((True, "new: "), (False, "not kept: measuring has yet")):
            options = {"multi_kernel": "on", "multi_kernel_cache": is_cached}
            _, (record,) = compiled(lambda x: x.sum(-1) * 2 + 1, x, **options)
            assert record.kept.startswith(outcome)
            sources = {known.source for known in record.choices[0].decisions.values()}
            assert ("kept" in sources) == is_cached


@pytest.mark.parametrize("target", ["python", "fx"])
def test_other_targets(target: str) -> None:
    results = [compiled(layer_norm, input_tensor(), target=target) for _ in range(2)]
    assert outcomes(results[1][1]) == [kept_plans.FOUND]
    same(results[0][0], results[1][0])


def test_checks_of_memory_know_the_loops_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_GUARD_PAGES", "end")
    for _ in range(2):
        _, (record,) = compiled(layer_norm, input_tensor())
        assert record.kept.startswith("not kept: checks of memory are on")


def test_debugging_is_part_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for options in ({}, {"debug_printer": "kernel_names"}, {"debug_printer": "kernel_names"}, {}):
        compiled(layer_norm, input_tensor(), **options)
        shown.append(capsys.readouterr().out.count("cpu_"))
    assert shown == [0, shown[1], shown[1], 0] and shown[1] > 0


def test_a_nan_is_told_with_the_line(folder: Path) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return (x - 9).log()

    told = []
    for _ in range(2):
        function = fusewright.compile(wrong, options={"strict": True, "check_nan": True})
        with pytest.raises(fusewright.errors.NanFound) as raised:
            function(input_tensor())
        told.append(re.sub(r"0x\w+", "", str(raised.value)))
    assert told[0] == told[1] and __file__ in told[0]


# -- Files -----------------------------------------------------------------------------------------


def kept_file() -> Path:
    (key,) = kept_plans.PLANS.keys_on_disk()
    return kept_plans.PLANS.path(key)


def test_a_changed_file_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = compiled(layer_norm, input_tensor())
    path = kept_file()
    whole = path.read_bytes()
    for place in [*range(0, len(whole), max(1, len(whole) // 60)), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert kept_plans.PLANS.read(path.stem) is None
    for wrong in (whole[: len(whole) // 2], b"", whole + b"x"):
        path.write_bytes(wrong)
        result, (record,) = compiled(layer_norm, input_tensor())
        same(result, expected)
        assert record.kept.startswith("new: ")
        assert path.read_bytes() == whole


def test_rows_that_nobody_wrote_are_made_anew() -> None:
    expected, _ = compiled(layer_norm, input_tensor())
    (key,) = kept_plans.PLANS.keys_on_disk()
    whole = kept_plans.PLANS.read(key)
    assert whole is not None
    for wrong in (b"", b"x" * 40, whole[:8] + whole[9:], (4).to_bytes(8, "little") + whole[8:]):
        kept_plans.PLANS.write(key, wrong)
        result, (record,) = compiled(layer_norm, input_tensor())
        same(result, expected)
        assert record.kept.startswith("new: the kept one is damaged")
        assert kept_plans.PLANS.read(key) == whole


def test_keys_in_another_form_count_for_nothing() -> None:
    compiled(layer_norm, input_tensor())
    (place,) = kept_plans.KEYS.keys_on_disk()
    for content in (b"[]", b'{"keys": []}', b"null"):
        kept_plans.KEYS.write(place, content)
        assert kept_plans.last_misses(5) == [] and "made last" not in caches.info()
        kept_plans.PLANS.clear()
        _, (record,) = compiled(layer_norm, input_tensor())
        assert record.kept == "new: no graph that begins here was kept"


def test_a_file_that_others_may_write_to_counts_for_nothing() -> None:
    compiled(layer_norm, input_tensor())
    kept_file().chmod(0o666)
    _, (record,) = compiled(layer_norm, input_tensor())
    assert record.kept != kept_plans.FOUND


def test_a_full_disk_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fusewright.runtime.kept_files.write_whole", full)
    result, _ = compiled(layer_norm, input_tensor())
    torch.testing.assert_close(result, layer_norm(input_tensor()))
    assert not kept_plans.PLANS.keys_on_disk()


def test_plans_are_carried_to_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(layer_norm, input_tensor())
    assert "plans of graphs: 1 file," in caches.info()
    caches.export_to(tmp_path / "exported")
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "other"))
    caches.import_from(tmp_path / "exported")
    _, (record,) = compiled(layer_norm, input_tensor())
    assert record.kept == kept_plans.FOUND
    caches.clear()
    assert not kept_plans.PLANS.keys_on_disk()


def test_a_found_plan_holds_nothing_of_its_graph() -> None:
    compiled(layer_norm, input_tensor())
    module = nn.Linear(6, 6).requires_grad_(False)
    compiled(module, input_tensor())
    graphs: list[Any] = []
    real = pipeline._compile_kept

    def noted(found: Any, graph: Any, context: CompileContext) -> Any:
        graphs.append(graph.graph)
        return real(found, graph, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_compile_kept", noted)
        function = fusewright.compile(module, options={"strict": True})
        function(input_tensor())
    (graph,) = map(weakref.ref, graphs)
    graphs.clear()
    gc.collect()
    assert graph() is None
    assert function(input_tensor()).shape == (4, 6)


# -- Other processes -------------------------------------------------------------------------------

PROCESS = """
import json, sys
import torch, fusewright
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        return torch.nn.functional.layer_norm(self.second(self.first(x).relu()), (4,))
net, x = Net(), torch.linspace(-1, 1, 24).reshape(3, 8)
compiled = fusewright.compile(net, options={"strict": True})
result = compiled(x)
result.sum().backward()
told = str(fusewright.explain(compiled).history)
print(json.dumps({
    "result": result.tolist(), "gradient": net.first.weight.grad.tolist(),
    "kept": [line.strip() for line in told.splitlines() if "plan on disk" in line],
    "modules": sorted(sys.modules),
}))
"""


def start(folder: Path, hash_seed: str = "random") -> subprocess.Popen[str]:
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed,
        "FUSEWRIGHT_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, str(folder.parent / "program.py")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def test_another_process_needs_no_stage_behind_tracing(folder: Path) -> None:
    first, second = (told(start(folder, seed)) for seed in ("1", "2"))
    assert [first[name] for name in ("result", "gradient")] == [
        second[name] for name in ("result", "gradient")
    ]
    assert first["kept"] and all("new: " in line for line in first["kept"])
    assert second["kept"] == [f"plan on disk: {kept_plans.FOUND}"]
    needless = [
        name
        for name in second["modules"]
        if name.startswith("fusewright.") and name.split(".")[1] in STAGES
    ]
    assert not needless
    assert "llvmlite" not in second["modules"]


@pytest.mark.thorough
def test_eight_processes_at_once(folder: Path) -> None:
    several = [told(process) for process in [start(folder) for _ in range(8)]]
    assert all(other["result"] == several[0]["result"] for other in several)
    assert all(other["gradient"] == several[0]["gradient"] for other in several)
    assert len(kept_plans.PLANS.keys_on_disk()) == 2
    assert told(start(folder))["kept"] == [f"plan on disk: {kept_plans.FOUND}"]


def test_a_report_of_misses_is_no_use_of_them() -> None:
    for program in (layer_norm, product, index):
        compiled(program, input_tensor())
    paths = [kept_plans.KEYS.path(key) for key in kept_plans.KEYS.keys_on_disk()]
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
    before = kept_plans.last_misses(5)
    assert len({place for place, _ in before}) == 3
    assert kept_plans.last_misses(5) == before


def test_keys_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "REMEMBERED", 2)
    for rows in range(1, 5):
        compiled(layer_norm, torch.ones(rows + 1, 6))
    kept: KeptFiles = kept_plans.KEYS
    (place,) = kept.keys_on_disk()
    content = kept.read(place)
    assert content is not None and len(json.loads(content)["keys"]) == 2
