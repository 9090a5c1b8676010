"""The comparison's processes: fresh caches, figures as JSON, failures as reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.models import MODELS, build
from benchmarks.sampling import PROCESSOR_TIME, typical


def test_caches_are_fresh_and_gone_afterwards() -> None:
    with compare.fresh_caches() as first, compare.fresh_caches() as second:
        assert set(first.values()).isdisjoint(second.values())
        assert all(not any(Path(folder).iterdir()) for folder in first.values())
    assert not any(Path(folder).exists() for folder in first.values())


def test_a_process_reports_its_figures() -> None:
    assert compare.run(["cold", "eager", "own", "perceptron"], {})["first_call"] > 0


def test_a_process_that_fails_says_why() -> None:
    found = compare.run(["no such file"], {}, module="json.tool")
    assert "No such file or directory: 'no such file'" in found["failure"]
    assert found["output"][-1] == found["failure"]


def test_the_peer_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert not compare.peer_is_available()
    row = compare.Row("perceptron", "own")
    monkeypatch.setattr(compare, "run", lambda arguments, variables: {"eager": {"call": 1.0}})
    assert list(compare._measure(row, ["eager", "torch.compile"])) == ["calls in turns"]
    assert row.columns["torch.compile"]["failure"].startswith("not available")
    assert row.columns["eager"] == {"call": 1.0}


def test_processor_time_is_of_one_thread_and_without_first_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def run(arguments: list[str], variables: dict[str, str]) -> dict[str, dict[str, float]]:
        asked.append((arguments[0], variables["OMP_NUM_THREADS"]))
        return {"eager": {"call": 2.0}, "fusewright": {"call": 1.0}}

    monkeypatch.setattr(compare, "run", run)
    row = compare.Row("perceptron", "own")
    assert list(compare._measure(row, ["eager", "fusewright"], of_processor=True)) == [
        "calls in turns"
    ]
    assert asked == [("steady", "1")]
    assert row.columns["fusewright"] == {"call": 1.0}


def test_typical_is_the_least_of_processor_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typical([3.0, 1.0, 2.0]) == 2.0
    monkeypatch.setenv(PROCESSOR_TIME, "1")
    assert typical([3.0, 1.0, 2.0]) == 1.0


def test_models_are_the_same_in_every_process() -> None:
    first, inputs = build("perceptron")
    second, again = build("perceptron")
    assert not first.training
    assert inputs["features"].equal(again["features"])
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert mine.equal(theirs)
    assert len(MODELS) == 8


def test_frozen_weights_are_a_way_to_compile() -> None:
    """In processor time, as any column may be measured."""
    columns = "eager,fusewright"
    figures = compare.run(["steady", columns, "frozen", "perceptron"], compare.ONE_THREAD)
    assert figures["eager"]["call"] > 0
    assert figures["fusewright"]["error"] < 1e-5 and figures["fusewright"]["launches"] > 0


@pytest.mark.parametrize(
    "option", [["--frozen"], ["--peers", "openvino"], ["--peers", "onnxruntime"]]
)
def test_what_is_of_inference_is_refused_for_training(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        compare.main(["--mode", "train", *option])
    assert f"{option[0]} is for inference" in capsys.readouterr().err
