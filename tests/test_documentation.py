"""The pages of documentation: their programs run, and their links lead somewhere."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import errors
from fusewright.config import Options
from fusewright.logs import CHANNELS
from tools import one_function_page

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text)
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (path.parent / link).exists()] == []


def test_the_page_about_using_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs run, and print what the page shows, up to where durations come."""
    text = (ROOT / "docs" / "using.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    shown = re.findall(r"```\n((?:scaled|mean_of_rows) .*?)```", text, flags=re.S)
    assert len(blocks) == 11 and len(shown) == 2
    variables: dict[str, object] = {}
    for number, block in enumerate(blocks):
        path = tmp_path / f"example{number}.py"
        path.write_text(block)
        exec(compile(block, str(path), "exec"), variables)
    logging.getLogger("fusewright.recompiles").setLevel(logging.NOTSET)
    printed = re.sub(
        rf"{re.escape(str(tmp_path))}/example\d+.py", "example.py", capsys.readouterr().out
    )
    for text in shown:
        assert text.strip() in printed


def test_the_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs run, one after the other; they check themselves."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.S)
    assert len(blocks) == 7
    variables: dict[str, object] = {}
    for number, block in enumerate(blocks):
        path = tmp_path / f"part{number}.py"
        path.write_text(block)  # capture reads the lines of what it names
        exec(compile(block, str(path), "exec"), variables)
    printed = capsys.readouterr().out
    assert "1 graph, 0 breaks" in printed and "nothing differs" in printed


def test_the_page_about_one_function() -> None:
    command = "python -m tools.one_function_page"
    assert one_function_page.PAGE.read_text() == one_function_page.page(), f"run {command}"


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    named = re.findall(r"^::: fusewright\.(.+)$", text, flags=re.M)
    assert sorted(name.rpartition(".")[2] for name in named if name != "errors") == sorted(
        set(fusewright.__all__) - {"__version__"}
    )
    for name in named:
        module, _, attribute = f"fusewright.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_page_about_moving_names_what_there_is() -> None:
    """The options, errors and topics of the log in the columns that are ours."""
    text = (ROOT / "docs" / "moving-from-torch-compile.md").read_text()
    columns = [row.split("|")[2] for row in text.splitlines() if row.startswith("| ")]
    ours = " ".join(columns)
    options = set(re.findall(r"`options=\{\"(\w+)\"", ours))
    assert options and options <= {field.name for field in dataclasses.fields(Options)}
    topics = set(",".join(re.findall(r"FUSEWRIGHT_LOG=([\w,]+)", ours)).split(","))
    assert topics and topics <= set(CHANNELS)
    names = set(re.findall(r"`fusewright\.(\w+)", ours)) - {"errors", "list_backends"}
    assert names and names <= set(fusewright.__all__)
    (rows,) = re.findall(r"## Errors\n(.*?)\n## ", text, flags=re.S)
    exceptions = re.findall(
        r"`(?:fusewright\.errors\.)?([A-Z]\w+)`",
        " ".join(row.split("|")[2] for row in rows.splitlines() if row.startswith("| ")),
    )
    assert exceptions and all(hasattr(errors, name) for name in exceptions)


def test_every_page_stands_in_the_site() -> None:
    """The site's own builder, `make docs`, finds links that lead nowhere; this finds lost pages."""
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_first_program_that_readers_see() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    variables: dict[str, Any] = {
        "model": torch.nn.Linear(3, 2),
        "inputs": {"input": torch.ones(2, 3)},
    }
    exec(compile(block, "example.py", "exec"), variables)
    torch.testing.assert_close(variables["output"], variables["model"](torch.ones(2, 3)))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_name_programs_and_options_that_there_are(path: Path) -> None:
    command = r"\bpython[\d.]* (-m [\w.]+|[\w/]+\.py)((?: [^`\n#|]+)?)"
    for program, arguments in re.findall(command, path.read_text()):
        name = program.removeprefix("-m ").removesuffix(".py").replace(".", "/")
        if name in ("pytest", "venv"):
            continue
        files = [ROOT / f"{name}.py", ROOT / name / "__main__.py"]
        text = next((file.read_text() for file in files if file.exists()), None)
        assert text is not None, f"{path.name}: {program}"
        for option in re.findall(r"--[\w-]+", arguments):
            assert f'"{option}"' in text, f"{path.name}: {program} takes no {option}"


def test_the_page_about_training(capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs run, and print the lines that the page shows, where … is anything."""
    text = (ROOT / "docs" / "training.md").read_text()
    variables: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        exec(compile(block, "example.py", "exec"), variables)
    printed = capsys.readouterr().out
    shown = re.findall(r"```\n(\S.*?)```", re.sub(r"```python.*?```", "", text, flags=re.S), re.S)
    lines = [line for block in shown for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        assert re.search(re.escape(line).replace("…", ".*"), printed), line


def test_the_page_about_the_architecture_names_what_there_is() -> None:
    """Every file and folder that it names exists, and it names all that stand at the top."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+(?:/|\.(?:py|c|toml|md)))`", text))
    paths = [path for folder in ("docs", "src", "tests") for path in (ROOT / folder).rglob("*")]
    paths += ROOT.iterdir()
    there = [f"{path.as_posix()}/" if path.is_dir() else path.as_posix() for path in paths]
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []

    package = ROOT / "src" / "fusewright"
    top = {path.name for path in package.glob("[a-z]*.py")}
    top |= {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert sorted(top - named) == []
