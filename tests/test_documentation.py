"""The pages of documentation: their programs run, and their links lead somewhere."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (path.parent / link).exists()] == []


def test_the_page_about_using_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs run, and print what the page shows, up to where durations come."""
    text = (ROOT / "docs" / "using.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    shown = re.findall(r"```\n((?:scaled|mean_of_rows) .*?)```", text, flags=re.S)
    assert len(blocks) == 6 and len(shown) == 2
    variables: dict[str, object] = {}
    for number, block in enumerate(blocks):
        path = tmp_path / f"example{number}.py"
        path.write_text(block)
        exec(compile(block, str(path), "exec"), variables)
    logging.getLogger("fusewright.recompiles").setLevel(logging.NOTSET)
    printed = re.sub(
        rf"{re.escape(str(tmp_path))}/example\d.py", "example.py", capsys.readouterr().out
    )
    for text in shown:
        assert text.strip() in printed


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
