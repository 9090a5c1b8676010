"""What LLVM says of this machine's processor is kept on disk, by all that decides it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusewright
from fusewright.runtime import processor
from fusewright.runtime.processor import PROCESSORS, Processor, llvm_binding, this_processor

SOURCE = Path(fusewright.__file__).parents[1]


@pytest.fixture(autouse=True)
def questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[None]]:
    """How often LLVM is asked, with a folder of the test's own."""
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    asked: list[None] = []

    def counted() -> object:
        asked.append(None)
        return llvm_binding()

    monkeypatch.setattr(processor, "llvm_binding", counted)
    this_processor.cache_clear()
    yield asked
    this_processor.cache_clear()


def again() -> Processor:
    """The processor, as a later process finds it."""
    this_processor.cache_clear()
    return this_processor()


def test_it_is_asked_once(questions: list[None]) -> None:
    binding = llvm_binding()
    first = this_processor()
    assert first.name == binding.get_host_cpu_name()
    assert first.features == dict(binding.get_host_cpu_features())
    assert first.llvm == ".".join(map(str, binding.llvm_version_info))
    assert again() == first and len(questions) == 1


def test_another_llvm_or_processor_is_asked(
    questions: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    this_processor()
    with monkeypatch.context() as patch:
        patch.setattr(processor, "_identity", lambda path: (1, 2))
        again()
    assert len(questions) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda path: "flags : avx512f\nmodel : 1\n\n")
        again()
    assert len(questions) == 3
    with monkeypatch.context() as patch:  # nothing tells of the processor: it is asked each time
        patch.setattr(Path, "read_text", lambda path: "")
        again(), again()
    assert len(questions) == 5
    again()
    assert len(questions) == 5


def test_a_damaged_file_is_missing(questions: list[None]) -> None:
    first = this_processor()
    (path,) = PROCESSORS.folder().glob("*.json")
    path.write_bytes(path.read_bytes().replace(b"true", b"True", 1))
    assert again() == first and len(questions) == 2


PROGRAM = """
import sys, torch, fusewright
x = torch.randn(40, 8)
def function(x):
    return (x @ x.t()).softmax(-1)
torch.testing.assert_close(fusewright.compile(function)(x), function(x))
print("llvmlite" in sys.modules)
"""


def test_a_second_process_imports_no_llvm(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "FUSEWRIGHT_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert printed == ["True", "False"]
