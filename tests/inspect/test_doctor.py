"""`fusewright doctor`: what it finds, and what it makes of what is wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app
from fusewright.inspect import doctor, machine

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def quick(monkeypatch: Patch, tmp_path: Path) -> None:
    """A machine whose speed is known, and a cache of its own."""
    monkeypatch.setattr(doctor, "copy_bandwidth", lambda device="cpu": 12e9)
    monkeypatch.setattr(doctor, "product_rate", lambda: 100e9)
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))


def found(subject: str) -> doctor.Diagnosis:
    (finding,) = [one for one in doctor.examine(fusewright.compile) if one.subject == subject]
    return finding


def test_the_command() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    for text in (
        f"ok  torch          {torch.__version__}",
        "copies 12.0 GB/s, products 100 GFLOP/s",
        "a kernel was compiled and agrees with eager",
        "FUSEWRIGHT_CACHE_DIR=",
    ):
        assert text in result.output
    assert re.search("all is well|programs are compiled; ", result.output)


def test_what_the_page_shows_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text()
    shown = re.search(r"```\n(ok  fusewright.*?)```", page, re.S)[1]
    subjects = [line[4:19].strip() for line in shown.splitlines() if line[:2] in ("ok", "--")]
    printed = [one.subject for one in doctor.examine(fusewright.compile)]
    assert [one for one in subjects if one not in printed and one != "GPU"] == []


def test_a_failure_is_the_exit_status(monkeypatch: Patch) -> None:
    def fails() -> Any:
        raise ImportError("cannot import name 'x' from 'fusewright.native._extension'")

    monkeypatch.setitem(doctor.CHECKS, "processor", fails)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "XX  processor      ImportError" in result.output
    assert "install fusewright again" in result.output
    assert "1 thing must be mended before programs are compiled" in result.output
    assert "ok  compiling" in result.output, "the rest is looked at"


def test_a_wrong_result_is_a_failure() -> None:
    findings = doctor.examine(lambda program, **keywords: lambda x: program(x) + 1)
    (compiling,) = [one for one in findings if one.subject == "compiling"]
    assert compiling.kind == "failure" and "AssertionError" in compiling.text


def test_a_cache_that_others_may_write_to(tmp_path: Path) -> None:
    assert found("cache").kind == "ok"
    tmp_path.chmod(0o777)
    finding = found("cache")
    assert finding.kind == "failure" and finding.remedy == f"chmod 700 {tmp_path}"


def test_a_cache_of_somebody_else(monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    finding = found("cache")
    assert finding.kind == "failure" and "belongs to user" in finding.text


def test_a_full_disk(monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 1 << 62)
    finding = found("cache")
    assert finding.kind == "warning" and "are left on its disk" in finding.text


def test_too_many_threads_and_libraries(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    finding = found("OpenMP")
    assert finding.kind == "warning" and "OMP_NUM_THREADS=" in finding.remedy
    monkeypatch.setattr(doctor, "_loaded", lambda pattern: ["libgomp.so.1", "libiomp5.so"])
    assert "two OpenMP libraries" in found("OpenMP").remedy


def test_missing_packages(monkeypatch: Patch) -> None:
    real = doctor.importlib.util.find_spec
    missing = {"jinja2", "triton"}
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name in missing else real(name)
    )
    assert found("jinja2").remedy == "pip install 'fusewright[tools]'"
    assert found("Triton").remedy == "pip install 'fusewright[gpu]'"


def test_versions(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.4.0")
    assert found("torch").kind == "failure" and "pip install 'torch>=" in found("torch").remedy
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert found("torch").kind == "warning"


def test_speeds_are_those_of_a_machine(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "COPIED_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "PRODUCT_SIZE", 64)
    assert 1e8 < machine.copy_bandwidth.__wrapped__() < 1e13
    assert 1e7 < machine.product_rate.__wrapped__() < 1e14
