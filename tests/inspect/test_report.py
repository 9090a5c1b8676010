"""The report: what the page says, without a browser, and in one."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app
from fusewright.inspect.report import bytes_text, page, seconds_text, with_code
from fusewright.inspect.report.layout import layered
from fusewright.inspect.report.memory import memory_plan
from fusewright.ir.text import print_group
from tests.inspect.browser import CHROMIUM, Browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to show pages")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


MODEL = torch.nn.Sequential(Block(), Block()).double()


def step(x: Any, word: str = "<a>") -> Any:
    y = MODEL(x)
    print(end="")
    return (torch.softmax(y, -1) * len(word)).sum()


@pytest.fixture(scope="module")
def explanation() -> Any:
    torch.manual_seed(0)
    explain = fusewright.explain(step)
    found = explain(torch.randn(4, 16).double())
    found.result.backward()
    explain(torch.randn(4, 16).double(), "<script>alert(1)</script>")
    return explain.so_far


def data_of(text: str) -> Any:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


@pytest.mark.dynamic(None)
def test_the_page_tells_what_was_compiled(explanation: Any, tmp_path: Path) -> None:
    explanation.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Graph break" in text and "print(end=&#34;&#34;)" in text
    assert "Compiled again" in text and "test_report.py" in text
    assert "value1 = print(end=&#39;&#39;)" in text and "RETURN_VALUE" in text
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    for name in ("capture", "aot", "lower", "schedule", "kernels", "load", "guards"):
        assert f'class="bar stage-{name}"' in text, name
    programs = data_of(text)
    assert [one["title"] for one in programs][:2] == ["graph 1, forward", "graph 1, backward"]
    outside = re.findall(r'(?:src|href)="(?!#)([^"]+)"|url\(|@import|https?://', text)
    assert not [one for one in outside if "w3.org" not in one and one], outside
    assert text.count("<script") == 2


def test_nodes_and_kernels_are_those_of_the_record(explanation: Any) -> None:
    text = page([explanation])
    compilation = explanation.compilations[0]
    record = compilation.record
    (forward, backward, *_) = data_of(text)
    assert len(forward["before"]["nodes"]) == len(record.program.statements)
    assert len(forward["after"]["nodes"]) == len(record.schedule.steps)
    kernels = [node for node in forward["after"]["nodes"] if node["kind"] == "kernel"]
    assert [node["kernel"] for node in kernels] == [one.kernel for one in record.launches]
    assert [node["bytes"] for node in kernels] == [
        one.bytes_read + one.bytes_written for one in record.launches
    ]
    calls = [node for node in forward["after"]["nodes"] if node["kind"] == "library"]
    assert {node["label"] for node in calls} == {"addmm"}
    for part in ("before", "after"):
        for source, node in forward[part]["edges"]:
            assert forward[part]["nodes"][source]["layer"] < forward[part]["nodes"][node]["layer"]
    fused = {node["step"] for node in forward["before"]["nodes"]}
    assert fused == set(range(len(record.schedule.steps)))
    for kernel in record.kernels:
        assert f'id="{kernel.name}"' in text
    assert "gelu backward" in " ".join(node["label"] for node in backward["after"]["nodes"])
    loops = next(iter(record.schedule.works))
    assert print_group(loops).split("\n")[0].replace("<", "&lt;") in text


def test_the_memory_plan_has_the_records_peak(explanation: Any) -> None:
    for compilation in explanation.compilations:
        record = compilation.record
        if record is None:
            continue
        plan = memory_plan(record.lines, record.program.hints)
        assert plan.peak == record.peak_bytes
        for one in plan.blocks:
            for other in plan.blocks:
                if one is other or one.end <= other.begin or other.end <= one.begin:
                    continue
                apart = one.offset + one.bytes <= other.offset
                assert apart or other.offset + other.bytes <= one.offset


def test_times(explanation: Any) -> None:
    text = page([explanation], time=True)
    assert "of a copy" in text and "copies of large tensors move" in text
    assert "a call</h3>" in text


def test_a_matrix_product_is_measured_by_its_operations() -> None:
    linear = torch.nn.Linear(128, 64)
    explained = fusewright.explain(lambda x: torch.relu(linear(x)))(torch.randn(32, 128))
    (launch,) = explained.compilations[0].record.launches
    text = page([explained], time=True)
    kernel = text[text.index(f'id="{launch.kernel}"') :]
    (figures,) = re.findall('class="figures">(.*?)</span>', kernel)[:1]
    assert re.search(r"· [0-9.]+ [GM]FLOP/s · \d+ % of a large product$", figures), figures
    assert re.search(r"large products in float32 do [0-9.]+ [GM]FLOP/s\.", text)
    assert "multiplies and adds 524 kFLOP; reads" in kernel  # 2 * 32 * 128 * 64.


def test_nothing_was_compiled() -> None:
    text = page([])
    assert "Nothing was compiled" in text and data_of(text) == []


def test_another_backend_is_told_of_as_far_as_it_tells() -> None:
    found = fusewright.explain(torch.relu, backend="eager")(torch.ones(3))
    text = page([found])
    assert data_of(text) == [] and "Timeline" in text


def test_layers() -> None:
    places = layered([(), (), (0,), (0, 1), (2, 3), (0,)])
    assert [layer for layer, _ in places] == [0, 0, 1, 1, 2, 1]
    rows: dict[int, list[float]] = {}
    for layer, place in places:
        rows.setdefault(layer, []).append(place)
    for row in rows.values():
        ordered = sorted(row)
        assert all(b - a >= 0.99 for a, b in itertools.pairwise(ordered))
    assert layered([]) == []


def test_texts() -> None:
    assert [bytes_text(n) for n in (0, 999, 1234, 5.6e6, 7e9)] == [
        "0 B", "999 B", "1.23 kB", "5.6 MB", "7 GB",
    ]  # fmt: skip
    assert [seconds_text(n) for n in (2.5, 0.0123, 4.5e-6, 3e-9)] == [
        "2.5 s", "12.3 ms", "4.5 µs", "3 ns",
    ]  # fmt: skip
    assert with_code("`a<b` is <c>") == "<code>a&lt;b</code> is &lt;c&gt;"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, fusewright\n"
        "print(fusewright.compile(torch.sin)(torch.ones(3)).shape)\n"
        "raise SystemExit(len(sys.argv))\n"
    )
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", "--out", str(out), str(program), "--x"])
    assert result.exit_code == 2 and "1 compiled function told of" in result.output
    assert "<title>program.py" in out.read_text() and "sin" in out.read_text()


@needs_browser
@pytest.mark.thorough
def test_a_browser_shows_it(explanation: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page([explanation]))
    for width, height, phone in ((1280, 900, False), (390, 844, True)):
        for dark in (False, True):
            with Browser(width, height, dark=dark) as browser:
                browser.size(width, height, phone=phone)
                assert browser.open(file) < 2
                wide = browser.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, "nothing is cut off"
                colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 380) == dark
                browser.evaluate("document.querySelector('#kernels').scrollIntoView()")
                browser.until("document.querySelector('nav a.here').hash === '#kernels'")
                edge = browser.evaluate(
                    "document.querySelector('nav a.here').getBoundingClientRect().right"
                )
                assert edge <= width, "the link to what is seen is seen"
                assert browser.evaluate("document.querySelectorAll('.node').length") > 5
                assert browser.evaluate("document.querySelectorAll('.block').length") > 2
                assert browser.errors == []


@needs_browser
@pytest.mark.thorough
def test_it_can_be_walked_with_the_keyboard(explanation: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page([explanation]))
    with Browser() as browser:
        browser.open(file)
        browser.evaluate("document.getElementById('canvas').focus()")
        chosen = "document.querySelector('#details p').textContent"
        seen = []
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            browser.press(key)
            seen.append(browser.evaluate(chosen))
        assert len(set(seen)) == 3 and seen[3] == seen[1]
        browser.press("Home")
        assert browser.evaluate("document.querySelectorAll('.node.chosen').length") == 1
        browser.press("Enter")
        browser.until("location.hash.startsWith('#cpu_')")
        browser.until("document.getElementById(location.hash.slice(1)).open")
        browser.evaluate("document.querySelector('[data-when=before]').click()")
        before = browser.evaluate("document.querySelectorAll('.node').length")
        browser.evaluate(
            "const s = document.querySelector('select.program'); s.value = '1';"
            "s.dispatchEvent(new Event('change'))"
        )
        assert browser.evaluate("document.querySelectorAll('.node').length") != before
        browser.evaluate("document.getElementById('memory-chart').focus()")
        browser.press("ArrowRight")
        assert "Step 1, " in browser.evaluate(
            "document.getElementById('memory-readout').textContent"
        )
        theme = "document.documentElement.dataset.theme"
        browser.evaluate("document.getElementById('theme').click()")
        assert browser.evaluate(theme) == "dark"
        assert browser.errors == []


@needs_browser
@pytest.mark.thorough
def test_a_large_model(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(num_hidden_layers=12, hidden_size=96, intermediate_size=384)
    model = transformers.BertForMaskedLM(config).eval()
    found = fusewright.explain(model)(input_ids=torch.zeros(1, 16, dtype=torch.long))
    file = tmp_path / "page.html"
    found.to_html(file)
    assert file.stat().st_size < 5_000_000
    with Browser() as browser:
        assert browser.open(file) < 2
        assert browser.evaluate("document.querySelectorAll('.node').length") > 100
        assert browser.errors == []
