"""The command `fusewright`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app

ROOT = Path(__file__).parents[1]
PROGRAM = """\
import sys
import torch
import fusewright


def main(words):
    @fusewright.compile(backend="eager")
    def scaled(x, word):
        x = x * len(word)
        print("in the middle")
        return x + 1

    for word in words:
        scaled(torch.ones(3), word)


if __name__ == "__main__":
    main(sys.argv[1:])
    raise SystemExit(3)
"""
YAML = "backend: npu\ncpp_namespace: npu\nsupported: [relu]\n"


def test_opgen_writes_both_targets(tmp_path: Path) -> None:
    (tmp_path / "npu.yaml").write_text(YAML)
    result = CliRunner().invoke(app, ["opgen", str(tmp_path / "npu.yaml"), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "operators: 1 with a kernel, 1 made from these" in result.output
    assert (tmp_path / "RegisterNpu.cpp").exists()
    assert (tmp_path / "npu_operators.py").exists()


def test_opgen_errors_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "npu.yaml"
    file.write_text(YAML.replace("relu", "rellu"))
    result = CliRunner().invoke(app, ["opgen", str(file), "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert f"error: {file}:3: unknown operator 'rellu'; did you mean relu" in result.stderr


def test_opgen_needs_a_file() -> None:
    result = CliRunner().invoke(app, ["opgen", "nowhere.yaml"])
    assert result.exit_code == 1
    assert "nowhere.yaml: No such file" in result.stderr


@pytest.mark.parametrize(
    ("missing", "command", "advice"),
    [
        ("yaml", ["--help"], None),
        ("yaml", ["cache", "info"], None),
        ("yaml", ["opgen", "--survey"], "pip install 'fusewright[opgen]'"),
        ("typer", ["--help"], "pip install 'fusewright[tools]'"),
    ],
)
def test_what_one_command_needs_is_no_need_of_others(
    missing: str, command: list[str], advice: str | None
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {command!r}\n"
        "from fusewright.cli import app; app()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if advice is None:
        assert ran.returncode == 0, ran.stderr
    else:
        assert ran.returncode == 1 and ran.stderr.strip().endswith(advice)


def test_opgen_needs_text(tmp_path: Path) -> None:
    (tmp_path / "npu.yaml").write_bytes(b"backend: \xff\n")
    result = CliRunner().invoke(app, ["opgen", str(tmp_path / "npu.yaml")])
    assert result.exit_code == 1
    assert "npu.yaml: invalid start byte, at byte 9: not UTF-8" in result.stderr


def test_opgen_keeps_edited_files(tmp_path: Path) -> None:
    (tmp_path / "npu.yaml").write_text(YAML)
    command = ["opgen", str(tmp_path / "npu.yaml"), "--out", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    edited = tmp_path / "RegisterNpu.cpp"
    edited.write_text(f"{edited.read_text()}// mine\n")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"error: {edited}: was edited by hand" in result.stderr and "--force" in result.stderr
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert "mine" not in edited.read_text()


def test_explain_runs_a_program_and_tells_what_it_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = CliRunner().invoke(app, ["explain", str(program), "one", "--three"])
    assert result.exit_code == 3, "the program's own"
    assert result.output.startswith("in the middle\nin the middle\n\n")
    assert "main.<locals>.scaled" in result.output and "1 break, 1 recompile" in result.output
    assert "program.py:10" in result.output and "word: was 'one', is '--three'" in result.output

    program.write_text("import fusewright\n")
    assert "nothing was compiled" in CliRunner().invoke(app, ["explain", str(program)]).output
    assert CliRunner().invoke(app, ["explain", "nowhere.py"]).exit_code == 2


LOOPS = """\
program chain(x: f32[8])
  a: f32[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = exp t0
    yield t1
  b: f32[8] = pointwise [i0<8]
    t0 = load a[i0]
    t1 = neg t0
    yield t1
  return b
"""


def test_the_exception_of_a_program_is_printed_as_python_prints_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\ntorch.ones(2) @ torch.ones(3)\n")
    command = [sys.executable, "-m", "fusewright.cli", "explain", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{program}", line 2, in <module>',
    ]
    assert "runpy" not in done.stderr and "cli.py" not in done.stderr


def test_opt_runs_the_passes_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "loops.txt"
    file.write_text(LOOPS)

    def groups(*options: str) -> list[str]:
        result = CliRunner().invoke(app, ["opt", str(file), *options])
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(LOOPS)
        return re.findall("group (\\w+)", result.stdout)

    assert groups() == ["exp_neg"]
    assert groups("--pass", "dead-code", "--pass", "batch") == ["exp", "neg"]
    assert groups("--stop-after", "split") == ["exp", "neg"]
    assert groups("--stop-after", "inline") == ["exp_neg"]
    assert groups("--pass", "inline", "--stop-after", "split") == ["exp", "neg"]


def test_opt_prints_after_each_pass_and_goes_on_from_there(tmp_path: Path) -> None:
    file = tmp_path / "loops.txt"
    file.write_text(LOOPS)

    def printed(*options: str) -> list[str]:
        result = CliRunner().invoke(app, ["opt", str(file), "--print", *options])
        assert result.exit_code == 0, result.output
        return re.split("^# after ", result.stdout, flags=re.M)

    nothing, *after = printed("--pass", "dead-code", "--pass", "fuse")
    assert nothing == "" and [text.partition("\n")[0] for text in after] == ["dead-code", "fuse"]
    assert after[0] == f"dead-code\n{LOOPS}\n"
    steps, _, schedule = after[1].removeprefix("fuse\n").partition("\n\n")
    assert steps.count("  nest ") == 1 and steps.count("    piece\n") == 2
    file.write_text(f"{LOOPS}{steps}\n")
    assert printed() != printed("--pass", "batch")
    assert printed("--pass", "batch")[-1].partition("\n\n")[2] == schedule
    result = CliRunner().invoke(app, ["opt", str(file), "--pass", "inline"])
    assert result.exit_code == 1 and "inline comes before such steps" in result.stderr


def test_opt_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "loops.txt"
    file.write_text(LOOPS)
    for option in ("--pass", "--stop-after"):
        result = CliRunner().invoke(app, ["opt", str(file), option, "fuze"])
        assert result.exit_code == 1
        assert "error: no pass is called 'fuze'; there are dead-code, moments, " in result.stderr
    file.write_text(LOOPS.replace("load a[i0]", "load a[i0 + 1]"))
    result = CliRunner().invoke(app, ["opt", str(file)])
    assert result.exit_code == 1 and "error: " in result.stderr and "a[" in result.stderr


def test_survey() -> None:
    result = CliRunner().invoke(app, ["opgen", "--survey"])
    assert "operators declared" in result.output


def test_the_page_shows_what_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "opgen.md").read_text()
    shown = re.findall(r"```\n\$ fusewright (.*)\n((?:.*\n)*?)```", page)
    assert len(shown) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "npu.yaml").write_text(YAML.replace("[relu]", "\n- add.Tensr"))
    for command, expected in shown:
        if command.endswith("--survey") and not torch.__version__.startswith("2.13."):
            continue  # its totals are torch's
        assert CliRunner().invoke(app, command.split()).output == expected


MODEL = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1)).eval()
args = (torch.randn(2, 4),)
dynamic_shapes = {"input": {0: torch.export.Dim("rows")}}
"""


def test_packages_are_made_and_run(tmp_path: Path) -> None:
    program, path = tmp_path / "program.py", tmp_path / "model.fwp"
    program.write_text(MODEL)
    made = CliRunner().invoke(app, ["package", str(program), str(path), "--processor", "scalar"])
    assert made.exit_code == 0, made.output
    assert f"{path}: 0.0 MB" in made.output and "Python" not in made.output
    shown = f"Package(path={path!r}, entries={{'forward': forward(input)}})"
    assert repr(fusewright.load(path)) == shown
    ran = CliRunner().invoke(app, ["run-package", str(path), "--size", "5", "--repeat", "2"])
    assert ran.exit_code == 0, ran.output
    assert "forward(input)\n" in ran.output and "result: float32 of size 5×3" in ran.output
    torch.save({"input": torch.randn(7, 4)}, tmp_path / "inputs.pt")
    words = ["run-package", str(path), "--inputs", str(tmp_path / "inputs.pt"), "--repeat", "1"]
    assert "size 7×3" in CliRunner().invoke(app, words).output
    path.write_bytes(path.read_bytes()[:-1])
    refused = CliRunner().invoke(app, ["run-package", str(path)])
    assert refused.exit_code == 1 and "it was cut off" in refused.output
    program.write_text(
        MODEL.replace("model =", "other =") + "model = lambda input: input.histc(3)\n"
    )
    made = CliRunner().invoke(app, ["package", str(program), str(path), "--freeze", "--tune"])
    assert made.exit_code == 0, made.output
    assert "forward runs in Python alone: it passes 0 as number\n" in made.output
    program.write_text(MODEL.replace("eval()", "train()").replace("model =", "other ="))
    refused = CliRunner().invoke(app, ["package", str(program), str(path)])
    assert refused.exit_code == 2 and "defines no `model`" in refused.output


COMMANDS = sorted(
    command.name or command.callback.__name__.replace("_", "-")
    for command in app.registered_commands
)


def test_help_names_every_command() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert {"explain", "report", "profile", "bisect", "doctor"} <= set(COMMANDS)
    assert [name for name in COMMANDS if f" {name} " not in text] == []
    assert "─ Commands ─" not in text, "each stands under what it is for"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "-h"])
    assert result.exit_code == 0 and "Usage: " in result.output
    assert len(result.output.splitlines()) > 5


def test_shells_complete_commands() -> None:
    environment = {
        "_FUSEWRIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": "fusewright do",
        "COMP_CWORD": "1",
    }
    result = CliRunner().invoke(app, [], prog_name="fusewright", env=environment)
    assert result.output.split() == ["doctor"]
