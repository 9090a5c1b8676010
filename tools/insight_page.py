"""Writes docs/insight.md: what the commands print of BERT-base and of a GPT-2 that trains, and
pictures of the report, which a headless Chromium takes:

python -m tools.insight_page

Its figures are those of this machine, now.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import torch

from fusewright.inspect.doctor import processor_name
from tests.inspect.browser import Browser

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "insight.md"
TEMPLATE: Final = ROOT / "tools" / "insight_page.md"
PICTURES: Final = ROOT / "docs" / "pictures"
BERT: Final = ROOT / "examples" / "bert.py"
GPT: Final = ROOT / "examples" / "train_gpt2.py"

LARGEST: Final = 150_000
"""Bytes of a picture, at most."""

LAPTOP: Final = (1120, 700)
PHONE: Final = (390, 560)


def main() -> None:
    """Run the commands, take the pictures, and write the page."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("report", "--time", "--out", str(folder / "bert.html"), str(BERT))
        profiles = [run("profile", str(program)) for program in (BERT, GPT)]
        explained = run("explain", str(GPT))
        run("report", "--out", str(folder / "gpt.html"), str(GPT))
        take_pictures(folder / "bert.html")
        PAGE.write_text(
            TEMPLATE.read_text(encoding="utf-8").format(
                machine=f"{torch.get_num_threads()} cores of an {processor_name()}",
                date=datetime.date.today().isoformat(),
                report_size=(folder / "bert.html").stat().st_size // 1000,
                gpt_size=(folder / "gpt.html").stat().st_size // 1000,
                profile_bert=profiles[0],
                profile_gpt=profiles[1],
                explain_gpt=explained,
            ),
            encoding="utf-8",
        )


def run(command: str, *arguments: str) -> str:
    """The output of a command about a program, without what the program prints. Raises
    CalledProcessError.
    """
    finished = subprocess.run(
        [sys.executable, "-m", "fusewright.cli", command, *arguments],
        cwd=ROOT,
        env={**os.environ, "FUSEWRIGHT_PROGRESS": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = finished.stdout.strip().splitlines()
    own = [line for line in lines if not re.match(r"step \d+: loss|logits: ", line)]
    return "\n".join(line.rstrip() for line in own).strip()


def take_pictures(report: Path) -> None:
    """Keep what a browser shows of a report, on a laptop, in the dark, and on a phone."""
    with Browser(*LAPTOP) as browser:
        browser.open(report)
        keep(browser, "summary")
        keep(browser, "source", "#source")
        browser.evaluate("document.getElementById('canvas').focus({preventScroll: true})")
        for _ in range(6):
            browser.press("ArrowDown")
        keep(browser, "graph", "#graph")
    with Browser(*LAPTOP, dark=True) as browser:
        browser.open(report)
        browser.evaluate("document.querySelector('details.kernel').open = true")
        keep(browser, "kernel-dark", "#kernels")
    with Browser(*PHONE) as browser:
        browser.size(*PHONE, phone=True)
        browser.open(report)
        keep(browser, "phone", "#kernels")


def keep(browser: Browser, name: str, of: str = "") -> None:
    """Keep what is seen, from the element `of` on. Raises ValueError: it is too large."""
    path = PICTURES / f"report-{name}.png"
    browser.picture(path, of)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
