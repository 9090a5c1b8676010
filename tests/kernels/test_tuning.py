"""Tuning ahead of time: each kernel is tried on arguments of its own, and the fastest is taken."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.fuzz import loops
from fusewright.ir.group import Group
from fusewright.ir.lines import CallChoice, CallKernel, DefineChoice
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_program
from fusewright.kernels import KernelLanguage, KernelSet, Languages, define_kernels
from fusewright.kernels.language import Candidate
from fusewright.kernels.random_arguments import index_limits
from fusewright.records import replace
from fusewright.runtime import choices, trials
from fusewright.runtime.choices import FILES
from fusewright.runtime.trials import Alternative, Tuned, decided
from fusewright.schedule import schedule

SUM = """
program total(x: f32[64, 100])
  y: f32[64] = reduce sum [i0<64] over [r0<100]
    t0 = load x[100*i0 + r0]
    yield t0
  return y
"""

SYMBOLIC = """
program total(s0 in [2, inf) hint 48, x: f32[s0, 100])
  y: f32[s0] = reduce sum [i0<s0] over [r0<100]
    t0 = load x[100*i0 + r0]
    yield t0
  return y
"""

TWO_SUMS = """
program sums(x: f32[64, 1000], w: f32[8, 64])
  y: f32[64] = reduce sum [i0<64] over [r0<1000]
    t0 = load x[1000*i0 + r0]
    yield t0
  z: f32[8] = reduce sum [i0<8] over [r0<64]
    t0 = load w[64*i0 + r0]
    t1 = load y[r0]
    t2 = mul t0, t1
    yield t2
  return z
"""

TUNED = Options(tune=True)


class PlantedTimer:
    """Says that the alternative of one number is the fastest, and keeps what it was asked."""

    def __init__(self, fastest: int = 0) -> None:
        self.fastest = fastest
        self.asked: list[int] = []
        """The number of alternatives in each trial."""

    def __call__(self, alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        self.asked.append(len(alternatives))
        for alternative in alternatives:
            alternative()
        fastest = min(self.fastest, len(alternatives) - 1)
        return [1.0 if number == fastest else 2.0 for number in range(len(alternatives))]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedTimer]:
    """The timer that decides here: for what is written first."""
    planted = PlantedTimer()
    monkeypatch.setattr(trials, "TIMER", planted)
    yield planted


def kernels(text: str, languages: Languages | None = None) -> KernelSet:
    context = CompileContext(options=TUNED)
    return define_kernels(schedule(parse_program(text), context), context, languages)


# The choice ---------------------------------------------------------------------------------------


def test_the_fastest_is_taken(timer: PlantedTimer) -> None:
    first = kernels(SUM).definitions[0]
    timer.fastest = 1
    FILES.clear()
    (trial,) = (second := kernels(SUM)).tuned
    (kernel,) = second.definitions
    assert kernel.source != first.source
    assert kernel.name == trial.kernel != first.name
    assert kernel.name.rpartition("_")[0] == first.name.rpartition("_")[0]
    assert (trial.decision.winner, trial.decision.speed_up) == (1, 2.0)
    assert next(iter(second.launches.values())).kernel == kernel.name


def test_what_is_a_little_faster_is_noise() -> None:
    assert decided([1.0, 0.97]).winner == 0
    assert decided([1.0, 0.5, 0.4]).winner == 2
    assert decided([inf, 3.0]).winner == 1
    assert decided([inf, inf]).winner == 0


def test_a_slow_alternative_loses() -> None:
    def work(count: int) -> Alternative:
        return lambda: sum(range(count))

    device = torch.device("cpu")
    decision = decided(trials.time_alternatives([work(50_000), work(100)], device))
    assert decision.winner == 1


def test_an_alternative_that_fails_is_left_out() -> None:
    def fails() -> None:
        raise IndexError

    seconds = trials.time_alternatives([fails, lambda: sum(range(100))], torch.device("cpu"))
    assert seconds[0] == inf
    assert decided(seconds).winner == 1


def test_a_candidate_that_does_not_compile_is_left_out(timer: PlantedTimer) -> None:
    timer.fastest = 1
    language = Languages(TUNED).of("cpu")

    def candidates(*arguments: Any) -> list[Candidate]:
        several = list(language.candidates(*arguments))
        return [replace(several[0], source="no LLVM IR"), *several]

    own: KernelLanguage = replace(language, candidates=candidates)
    (trial,) = kernels(SUM, Languages(TUNED, own)).tuned
    assert trial.decision.seconds[0] is None
    assert trial.decision.winner == 2  # the second of those that are left


# Arguments ----------------------------------------------------------------------------------------


def test_symbolic_sizes_are_taken_at_their_hints(timer: PlantedTimer) -> None:
    (trial,) = kernels(SYMBOLIC).tuned
    assert trial.argument_bytes == 4 * (48 * 100 + 48)


def test_sizes_found_out_while_running_are_not_tried() -> None:
    options = {"tune": True, "strict": True}
    compiled = fusewright.compile(lambda x: x.nonzero() * 2, fullgraph=True, options=options)
    x = torch.tensor([0.0, 1.0, 2.0])
    assert torch.equal(compiled(x), x.nonzero() * 2)


def test_indices_lie_within_their_ranges(timer: PlantedTimer) -> None:
    table, rows = torch.randn(5, 16), torch.tensor([0, 4, 2])
    compiled = tuned(torch.nn.functional.embedding)
    assert torch.equal(compiled(rows, table), table[rows])
    assert timer.asked
    assert not any(trial.untried_because for trial in trials_of(compiled))


def test_indices_that_are_looked_up_are_tried(timer: PlantedTimer) -> None:
    def gathered(table: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        return table[places[rows]] * 2

    table, places, rows = torch.randn(3, 16), torch.tensor([2, 0, 1, 1]), torch.tensor([0, 3, 2])
    compiled = tuned(gathered)
    assert torch.equal(compiled(table, places, rows), gathered(table, places, rows))
    assert timer.asked
    assert not any(trial.untried_because for trial in trials_of(compiled))


def test_computed_indices_are_not_tried() -> None:
    def gathered(table: Tensor, rows: Tensor) -> Tensor:
        return table[rows * 2]

    table, rows = torch.randn(9, 16), torch.tensor([0, 4, 2])
    compiled = tuned(gathered)
    assert torch.equal(compiled(table, rows), table[rows * 2])
    assert {trial.untried_because for trial in trials_of(compiled)} == {
        "it computes indices from what it reads"
    }


def test_nothing_is_tried_in_a_call_that_the_program_records(
    timer: PlantedTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels, products and choices are what the rules say, and nothing is kept of them."""
    monkeypatch.setattr(choices, "is_recording", lambda: True)
    x = torch.randn(8, 9000)
    for program in (lambda x: (x.sum(-1) * 2, x[:, :48] @ x[:, :48].T), lambda x: x.mean()):
        compiled = tuned(program)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-3, atol=1e-3)
        reasons = [trial.untried_because for trial in trials_of(compiled)]
        assert reasons and {*reasons} == {"the program records a CUDA graph"}
    assert not timer.asked and not FILES.keys_on_disk()


def test_random_numbers_of_the_program_stay_as_they_are() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    kernels(SUM)
    assert torch.equal(torch.get_rng_state(), before)


def test_arguments_are_freed_before_the_next_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Tensor]] = []
    peaks: list[int] = []

    def watching(alternatives: Sequence[Any], device: torch.device) -> list[float]:
        assert not any(reference() is not None for reference in alive)
        tensors = [value for value in alternatives[0].args if isinstance(value, Tensor)]
        alive[:] = map(weakref.ref, tensors)
        peaks.append(sum(tensor.nbytes for tensor in tensors))
        return [1.0] * len(alternatives)

    monkeypatch.setattr(trials, "TIMER", watching)

    def layers(x: Tensor) -> Tensor:
        return torch.softmax(torch.softmax(x, -1).sum(0), -1)

    compiled = tuned(layers)
    compiled(torch.randn(200, 300))
    assert len(peaks) > 1
    assert max(peaks) == max(trial.argument_bytes for trial in trials_of(compiled))
    assert max(peaks) <= 1.1 * 2 * 4 * 200 * 300  # what the largest kernel reads and writes


def test_calls_go_through_inputs_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds its own, as in a model; in as much memory as the largest arguments take. What the
    program computes itself is the same for all.
    """
    monkeypatch.setitem(trials.COLD_BYTES, "cpu", 1 << 30)
    seen: list[list[set[int]]] = []

    def watching(alternatives: Sequence[Any], device: torch.device) -> list[float]:
        addresses: list[list[int]] = []
        original = guarded.calls
        for _ in range(4):
            alternatives[0]()
            addresses.append(original.pop())
        seen.append([set(column) for column in zip(*addresses, strict=True)])
        return [1.0] * len(alternatives)

    class Guarded:
        """Loads kernels that say where their tensors lie."""

        def __init__(self) -> None:
            self.calls: list[list[int]] = []

        def load(self, sources: Any) -> tuple[Any, ...]:
            return tuple(self.telling(function) for function in language.load(sources))

        def telling(self, function: Any) -> Any:
            def told(*arguments: Any) -> None:
                own = [value for value in arguments if isinstance(value, Tensor)]
                self.calls.append([tensor.data_ptr() for tensor in own])
                function(*arguments)

            return told

    guarded, language = Guarded(), Languages(TUNED).of("cpu")
    monkeypatch.setattr(trials, "TIMER", watching)
    kernels(TWO_SUMS, Languages(TUNED, replace(language, load=guarded.load)))
    largest, small = seen
    assert [len(column) for column in largest] == [1, 1]
    assert [len(column) for column in small] == [4, 1, 1]  # w, y and z


def test_what_was_fastest_in_a_cache_decides_in_none(
    timer: PlantedTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of a small program is tried anew in a large one, whose inputs lie in memory."""
    monkeypatch.setitem(trials.COLD_BYTES, "cpu", 1 << 16)
    small, large = TWO_SUMS.replace("1000", "10"), TWO_SUMS
    assert [trial.was_kept for trial in kernels(small).tuned] == [False, False]
    assert [trial.was_kept for trial in kernels(small).tuned] == [True, True]
    assert [trial.was_kept for trial in kernels(large).tuned] == [False, False]


# Decisions on disk --------------------------------------------------------------------------------


def test_a_second_compile_times_nothing(timer: PlantedTimer) -> None:
    timer.fastest = 1
    first = kernels(SUM)
    assert len(timer.asked) == 1
    second = kernels(SUM)
    assert len(timer.asked) == 1
    assert second.tuned[0].was_kept
    assert second.definitions == first.definitions


def test_what_one_compile_tries_is_told_of_as_tried(
    timer: PlantedTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it schedules anew, since a sum was left to a choice which there is none of."""
    monkeypatch.setattr(fusewright.kernels, "is_left_open", lambda *_: True)
    twice = fusewright.explain(lambda x: x.softmax(-1).sum(0), options={"tune": True})
    tuning = twice(torch.randn(64, 100)).tuning
    assert timer.asked and tuning is not None
    assert not any(trial.was_kept for trial in tuning.trials)
    assert all(trial.argument_bytes > 0 for trial in tuning.trials)
    assert tuning.peak_bytes >= 4 * 64 * 100


def test_a_decision_that_cannot_be_is_made_again(timer: PlantedTimer) -> None:
    kernels(SUM)
    (key,) = FILES.keys_on_disk()
    FILES.write(key, (FILES.read(key) or b"").replace(b'"winner": 0', b'"winner": 99'))
    kernels(SUM)
    assert len(timer.asked) == 2


# Whole programs -----------------------------------------------------------------------------------


def tuned(target: Any, **options: Any) -> Any:
    """The target, compiled with tuning."""
    chosen = {"strict": True, "verify": True, **options}
    return fusewright.compile(target, mode="max-autotune-no-cudagraphs", options=chosen)


def trials_of(compiled: Any) -> tuple[Tuned, ...]:
    """The trials in all that was compiled for a function, its parts and halves."""
    report = fusewright.explain(compiled).history
    parts = [part for compilation in report.compilations for part in compilation.records]
    return tuple(trial for part in parts for trial in part.tuned)


def test_both_sides_of_a_condition_are_tuned(timer: PlantedTimer) -> None:
    def either(x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: x.softmax(-1) * 2, lambda x: x.cumsum(-1).softmax(0), (x,)
        )

    compiled = tuned(either)
    x = torch.rand(40, 50)
    torch.testing.assert_close(compiled(x), either(x))  # The other side has never run.
    (compilation,) = fusewright.compilations(compiled)
    assert all(record.tuned for record in compilation.record.subprograms)
    assert len(compilation.record.subprograms) == 2


def test_the_body_of_a_loop_is_tuned(timer: PlantedTimer) -> None:
    def halved(x: Tensor) -> Tensor:
        def step(x: Tensor) -> tuple[Tensor]:
            return (x * x.amax(-1, keepdim=True) / 2,)

        (x,) = torch.while_loop(lambda x: x.sum() > 1, step, (x,))
        return x

    compiled = tuned(halved)
    x = torch.rand(20, 30)
    torch.testing.assert_close(compiled(x), halved(x))
    (compilation,) = fusewright.compilations(compiled)
    assert any(record.tuned for record in compilation.record.subprograms)


def test_a_backward_graph_is_tuned(timer: PlantedTimer) -> None:
    timer.fastest = 1
    layer = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.LayerNorm(96))
    x = torch.randn(32, 64)
    layer(x).sum().backward()
    wanted = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    compiled = tuned(layer)
    compiled(x).sum().backward()
    for parameter, gradient in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)
    (compilation,) = fusewright.compilations(compiled)
    forward, backward = compilation.halves
    assert forward.record.tuned
    assert backward.record.tuned


def test_lines_are_those_of_an_untuned_compile_where_the_rules_win(timer: PlantedTimer) -> None:
    def f(x: Tensor) -> Tensor:
        return (x @ x).softmax(-1)

    x = torch.randn(64, 64)
    texts = []
    for compiled in (tuned(f), fusewright.compile(f)):
        compiled(x)
        (compilation,) = fusewright.compilations(compiled)
        texts.append(compilation.compiled.path.read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("fastest", [1, 2, 3, 5, 8])
def test_results_of_other_candidates(timer: PlantedTimer, fastest: int) -> None:
    timer.fastest = fastest

    def f(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        y = torch.nn.functional.gelu(x @ w)
        return y.softmax(-1), y.sum(0), (y.T + 1).amax(0), v @ w, x.view(33, 8, 16).transpose(0, 2)

    arguments = torch.randn(33, 128), torch.randn(128, 70), torch.randn(2, 128)
    compiled = tuned(f)
    for found, wanted in zip(compiled(*arguments), f(*arguments), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert {trial.decision.winner for trial in trials_of(compiled)} - {0}


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_the_modes_of_torch_compile(mode: str, timer: PlantedTimer) -> None:
    def f(x: Tensor) -> Tensor:
        return x.softmax(-1)

    x = torch.randn(8, 100)
    explained = fusewright.explain(f, mode=mode)(x)
    assert torch.allclose(explained.result, f(x))
    assert explained.tuning is not None
    assert len(explained.tuning.trials) == len(timer.asked) == 1
    assert "tuned 1 kernel in" in str(explained)


def test_packages_are_tuned(timer: PlantedTimer, tmp_path: Path) -> None:
    timer.fastest = 1
    layer = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.LayerNorm(96)).eval()
    x = torch.randn(8, 64)
    path = tmp_path / "layer.fwp"
    fusewright.aot_compile(layer, (x,), path=path, options={"tune": True})
    assert timer.asked
    torch.testing.assert_close(fusewright.load(path)(x), layer(x), rtol=1e-4, atol=1e-5)


def test_the_report_says_why(timer: PlantedTimer, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    timer.fastest = 1
    options = {"strict": True, "tune": True}
    explained = fusewright.explain(lambda x: x.softmax(-1), options=options)(torch.randn(64, 100))
    page = tmp_path / "report.html"
    explained.to_html(page)
    assert "(2.00 times as fast, of" in page.read_text()


def test_index_limits_name_the_buffer() -> None:
    (group,) = groups("""
program rows(table: f32[10, 4], n: i64[3])
  y: f32[3, 4] = pointwise [i0<3, i1<4]
    t0 = load n[i0]
    k0 = indirect t0 below 10 check
    t1 = load table[4*k0 + i1]
    yield t1
  return y
""")
    assert {name: [int(size) for size in sizes] for name, sizes in index_limits(group).items()} == {
        "n": [10]
    }


def groups(text: str) -> list[Group]:
    works = schedule(parse_program(text), CompileContext()).works
    return [work for work in works if isinstance(work, Group)]


@pytest.mark.parametrize("part", range(2))
def test_random_programs(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever candidate wins computes what the loops say."""
    draw = Random(300 + part)

    def timer(alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        for alternative in alternatives:
            alternative()
        winner = draw.randrange(len(alternatives))
        return [1.0 if number == winner else 2.0 for number in range(len(alternatives))]

    monkeypatch.setattr(trials, "TIMER", timer)
    for number in range(part, 40, 2):
        program = loops.generate(Random(f"tuned {number}"))
        assert loops.check(program, number, ("auto",), tune=True) is None, print_program(program)


# Choices among alternatives of several kernels ----------------------------------------------------


@pytest.mark.parametrize("fastest", [0, 1])
def test_choices_are_filled_in_before_lines_are_emitted(
    timer: PlantedTimer, fastest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # On which seven rows go unevenly.
    timer.fastest = fastest

    def total(x: Tensor) -> Tensor:
        return x.sum(-1)

    compiled = tuned(total)
    x = torch.randn(7, 32768)
    torch.testing.assert_close(compiled(x), total(x), rtol=1e-3, atol=1e-3)
    record = fusewright.compilations(compiled)[0].record
    choice = next(trial for trial in record.tuned if "choice" in trial.kernel)
    assert choice.decision.winner == fastest
    assert not any(isinstance(line, DefineChoice | CallChoice) for line in record.lines)
    launches = [line for line in record.lines if isinstance(line, CallKernel)]
    alternatives = record.choices[0].alternatives
    assert (len(launches) > 1) == ("split" in alternatives[fastest])


def test_choices_of_any_size_find_their_class_decided(timer: PlantedTimer) -> None:
    timer.fastest = 1

    def total(x: Tensor) -> Tensor:
        return x.sum(-1)

    compiled = tuned(total)
    for rows in (8, 9, 10):
        x = torch.randn(rows, 32768)
        torch.testing.assert_close(compiled(x), total(x), rtol=1e-3, atol=1e-3)
