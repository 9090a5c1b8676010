"""Choices: the fastest alternative is found at the first call, kept, and called from then on."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fusewright.runtime import choices
from fusewright.runtime.choices import Choice, ChoiceSettings, size_class
from tests.threads import with_threads

Tensor = torch.Tensor


class Timings:
    """Stands in for the clock: each alternative has its time; counts how often it is asked."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds
        self.count = self.passes = 0

    def __call__(self, runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
        self.count += self.passes % 2 == 0  # A choice is timed in two passes.
        self.passes += 1
        for run in runs:
            run()
        return list(self.seconds[: len(runs)])


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def timed(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> Timings:
    timings = Timings(*seconds)
    monkeypatch.setattr(choices, "time_runs", timings)
    return timings


CALLS: list[str] = []


def doubled(x: Tensor, y: Tensor, *sizes: int) -> None:
    CALLS.append("doubled")
    y.copy_(x * 2)


def added(x: Tensor, y: Tensor, *sizes: int) -> None:
    CALLS.append("added")
    y.copy_(x + x)


def refusing(x: Tensor, y: Tensor, *sizes: int) -> None:
    raise RuntimeError("no room\nfor it")


def choice(in_place: tuple[int, ...] = (), **alternatives: Callable[..., None]) -> Choice:
    namespace: dict[str, Any] = {}
    ways = alternatives or {"doubled": doubled, "added": added}
    made = Choice(namespace, "k", "3f", 2, (1,), in_place, ways)
    namespace["k"] = made
    made.settings = ChoiceSettings()
    return made


def run(made: Choice, *sizes: int) -> None:
    x, y = torch.randn(4), torch.empty(4)
    made(x, y, *sizes)
    torch.testing.assert_close(y, x * 2)


def test_the_fastest_is_called_from_then_on(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)
    made = choice()
    assert made.section(0) == 0
    run(made)
    assert made.section(0) == 2
    assert made._namespace["k"] is added  # Python code calls it without the choice.
    CALLS.clear()
    run(made)
    assert CALLS == ["added"] and timings.count == 1


def test_a_second_process_times_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)
    run(choice())
    again = choice()
    run(again)
    (decision,) = again.decisions.values()
    assert timings.count == 1 and decision.source == "kept"
    assert decision.winner == 1 and decision.seconds == (2.0, 1.0) and decision.speed_up == 2


@pytest.mark.parametrize(
    "change",
    [
        {"winner": 2},
        {"winner": -1},
        {"winner": True},
        {"winner": None},
        {"seconds": [1.0]},
        {"seconds": "ab"},
        {"names": ["added", "doubled"]},
        {"sizes": 3},
    ],
    ids=str,
)
def test_what_is_read_is_checked(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)
    run(choice())
    key = choices.kept_key("3f", "cpu", 0)
    content = choices.FILES.read(key)
    assert content is not None
    choices.FILES.write(key, json.dumps({**json.loads(content), **change}).encode())
    run(choice())
    assert timings.count == 2


def test_other_kernels_threads_and_sizes_have_other_keys(fresh: Path) -> None:
    keys = {choices.kept_key(*parts) for parts in (("3f", "cpu", 0), ("4a", "cpu", 0))}
    keys.add(choices.kept_key("3f", "cpu", 5))
    with with_threads(torch.get_num_threads() + 1):
        keys.add(choices.kept_key("3f", "cpu", 0))
    assert len(keys) == 4


def test_sizes_of_one_class_share_a_decision(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)
    made = choice()
    for size in (1000, 600, 1023):
        run(made, size)
    assert timings.count == 1 and made.section(size_class([700])) == 2
    assert made.section(size_class([1024])) == 0
    timings.seconds = (1.0, 2.0)
    run(made, 1024)
    assert made.section(size_class([1500])) == 1 and made.section(size_class([700])) == 2
    assert made._namespace["k"] is made


def test_an_alternative_that_fails_is_left_out(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 1.0)
    made = choice(refusing=refusing, added=added)
    with pytest.warns(RuntimeWarning, match="without its alternative refusing: RuntimeError: no r"):
        run(made)
    (decision,) = made.decisions.values()
    assert decision.winner == 1 and decision.seconds == (None, 1.0) and decision.speed_up is None
    run(choice(refusing=refusing, added=added))  # Known, and not tried again.


def test_what_all_raise_is_raised(fresh: Path) -> None:
    made = choice(one=refusing, other=refusing)
    with pytest.raises(RuntimeError, match="no room"):
        run(made)
    assert not made.decisions and made.section(0) == 0


def test_without_memory_for_copies_the_first_is_taken(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)

    def clone(tensor: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("tried to allocate 20 GiB")

    monkeypatch.setattr(choices, "_clone", clone)
    made = choice(in_place=(1,))
    run(made)
    assert made.decisions[0].winner == timings.count == 0
    assert not choices.FILES.keys_on_disk()


def test_what_is_changed_in_place_is_changed_once(fresh: Path) -> None:
    """Under the real clock, which calls each many times; the same tensor is given for both."""

    def first(x: Tensor, y: Tensor) -> None:
        y.add_(x)

    def second(x: Tensor, y: Tensor) -> None:
        y.copy_(x + y)

    made = choice(in_place=(1,), first=first, second=second)
    memory = torch.arange(40.0)
    y = memory.as_strided((3, 4), (9, 2), 5)
    x = torch.ones(3, 4)
    expected = memory.clone()
    expected.as_strided((3, 4), (9, 2), 5).add_(1)
    made(x, y)
    torch.testing.assert_close(memory, expected)
    both = choice(first=first, second=second)  # The result lies in an argument's memory.
    both.settings = ChoiceSettings(is_kept=False)
    both(memory.as_strided((3, 4), (9, 2), 5), y)
    expected.as_strided((3, 4), (9, 2), 5).mul_(2)
    torch.testing.assert_close(memory, expected)


def test_nothing_is_decided_while_a_graph_records(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = timed(monkeypatch, 2.0, 1.0)
    monkeypatch.setattr(choices, "is_recording", lambda: True)
    made = choice()
    CALLS.clear()
    run(made)
    assert CALLS == ["doubled"] and made.section(0) == choices.NOW_UNDECIDED
    monkeypatch.undo()
    assert timings.count == 0


def test_other_threads_do_not_wait(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = choice()
    inside: list[Any] = []

    def time_runs(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
        thread = threading.Thread(target=lambda: inside.append((made.section(0), run(made))))
        thread.start()
        thread.join(60)
        return [2.0, 1.0]

    monkeypatch.setattr(choices, "time_runs", time_runs)
    run(made)
    assert inside == [(choices.NOW_UNDECIDED, None)] * 2  # A choice is timed in two passes.
    assert made.section(0) == 2


def test_a_choice_may_call_itself(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an alternative calls may come back to the same module."""

    def outer(x: Tensor, y: Tensor) -> None:
        doubled(x, y) if made._deciding.locked() else added(x, y)

    made = choice(outer=outer, added=added)
    timed(monkeypatch, 1.0, 2.0)
    run(made)
    assert made.section(0) == 1


def test_times_that_vary_are_not_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner is called all the same."""
    passes = iter([[3.0, 2.0], [3.0, 1.0]])
    monkeypatch.setattr(choices, "time_runs", lambda runs, device: next(passes))
    made = choice()
    run(made)
    (decision,) = made.decisions.values()
    assert decision.winner == 1 and decision.seconds == (3.0, 1.0) and not decision.is_steady
    assert not choices.FILES.keys_on_disk()


def test_the_table(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 3e-6, 2e-6)
    path = fresh / "table.csv"
    for size in (10, 100):
        made = choice()
        made.settings = ChoiceSettings(is_kept=False, table=str(path))
        run(made, size)
    with path.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first["choice"] == "k" and first["alternatives"] == "doubled added"
    assert first["microseconds"] == "3.000 2.000" and first["sizes"] == "10"
    assert second["winner"] == "added" and second["speed_up"] == "1.500"
    assert not choices.FILES.keys_on_disk()


def test_times_are_the_shortest(fresh: Path) -> None:
    slow, quick = torch.randn(400, 400), torch.randn(4, 4)
    times = choices.time_runs([lambda: slow @ slow, lambda: quick @ quick], torch.device("cpu"))
    assert times[0] > times[1] > 0


def test_another_alternative_has_to_win_both_passes(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = iter([[9.0, 2.0], [2.0, 2.0]])  # In the first, something else held the first one up.
    monkeypatch.setattr(choices, "time_runs", lambda runs, device: next(passes))
    made = choice()
    run(made)
    (decision,) = made.decisions.values()
    assert decision.winner == 0 and decision.seconds == (2.0, 2.0)
