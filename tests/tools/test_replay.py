"""`python -m tools.replay`: what it keeps, and that it finds what differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright.runtime import cpu
from fusewright.schedule import inline
from tools import replay
from tools.replay_programs import CORPORA, LANGUAGES, without_places

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]


def test_another_process_generates_the_same(tmp_path: Path) -> None:
    """One whose sets have another order."""
    chosen = ("--models", "--samples", "--only", "perceptron", "samples/logsumexp")
    assert replay.main(["keep", str(tmp_path), *chosen]) == 0
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    compared = subprocess.run(
        [sys.executable, "-m", "tools.replay", "compare", str(tmp_path), *chosen],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert compared.stdout.startswith("0 of 3 ")


def test_a_change_of_the_compiler_is_a_diff_under_the_name_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--goldens", "--only", "goldens/inline/")
    assert replay.main(["keep", str(tmp_path), *chosen]) == 0
    assert replay.main(["compare", str(tmp_path), *chosen]) == 0
    monkeypatch.setattr(inline, "why_not_inline", lambda *arguments: "never")
    capsys.readouterr()
    assert replay.main(["compare", str(tmp_path), *chosen]) == 1
    printed = capsys.readouterr().out
    assert "--- goldens/inline/" in printed and "\n-" in printed and "\n+" in printed


def test_programs_that_come_and_go_are_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--goldens", "--only", "goldens/split/")
    replay.main(["keep", str(tmp_path), *chosen])
    file = next((tmp_path / "goldens" / "split").iterdir())
    file.rename(file.with_stem("another"))
    capsys.readouterr()
    assert replay.main(["compare", str(tmp_path), *chosen]) == 1
    printed = capsys.readouterr().out
    assert "goldens/split/another: was kept, and is no program any more" in printed
    assert f"goldens/split/{file.stem}: was not kept" in printed


def test_parts_make_up_the_whole(tmp_path: Path) -> None:
    chosen = ("--goldens", "--only", "goldens/inline/")
    kept = []
    for number in (1, 2, 3):
        folder = tmp_path / str(number)
        replay.main(["keep", str(folder), *chosen, "--part", f"{number}/3"])
        kept += [path.name for path in folder.rglob("*.txt")]
        assert replay.main(["compare", str(folder), *chosen, "--part", f"{number}/3"]) == 0
    names = (name for name in CORPORA["goldens"]() if name.startswith("inline/"))
    assert sorted(kept) == sorted(f"{name.removeprefix('inline/')}.txt" for name in names)


@pytest.mark.parametrize("language", LANGUAGES)
def test_gradients_are_written_and_no_kernel_is_loaded(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "compile_batch", None)
    text = replay.text_of("logsumexp", CORPORA["samples"]()["logsumexp"], language)
    assert text.count("sample with gradient True\nprogram") > 0
    assert text.count("def call(inputs)") >= 2 * text.count("sample with gradient True")
    assert ("define i64 @kernel" if language == "cpu" else "tl.load") in text


def test_texts_hold_nothing_of_the_machine() -> None:
    place = "  # aten.exp.default at /home/someone/lib-3/model.py:12  y = x / 2 / z.exp()"
    assert without_places(place) == "  # aten.exp.default at model.py  y = x / 2 / z.exp()"
    assert without_places("<A at 0x7fa62e87bb80>") == "<A at 0x…>"
    assert without_places("float 0x4010000000000000") == "float 0x4010000000000000"
    text = replay.text_of("perceptron", CORPORA["models"]()["perceptron.training"], "cpu")
    assert str(ROOT) not in text and " at models.py " in text


def test_a_defect_of_the_compiler_is_no_text_to_compare() -> None:
    """It was kept as the code of every program, and compared equal."""

    def generate(language: object) -> str:
        raise TypeError("a missing argument")

    with pytest.raises(TypeError, match="a missing argument") as raised:
        replay.text_of("goldens/inline", generate, "cpu")
    assert raised.value.__notes__ == ["while the code of goldens/inline was generated"]
