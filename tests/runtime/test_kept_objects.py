"""Machine code of CPU kernels on disk: compiled once, whoever asks; damage is found; it can be
exported, imported and cleared.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app
from fusewright.runtime import llvm_engine
from fusewright.runtime.llvm_engine import OBJECTS, MachineCodeCompiler, compile_batch

SOURCE = Path(fusewright.__file__).parents[1]


def source(number: int) -> str:
    return (
        "define i64 @kernel(ptr %a, i64 %b, i64 %e) {\n"
        f"  store i64 {number}, ptr %a\n  ret i64 0\n}}\n"
    )


def run(number: int) -> int:
    """What the kernel stores, compiled or read from disk."""
    cell = ctypes.c_int64()
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    library = compile_batch({"k": source(number)})
    signature(library.addresses["k"])(ctypes.addressof(cell), 0, 1)
    return cell.value


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The sources that were compiled, with a folder of the test's own."""
    run(0)  # What LLVM says of the processor is kept before, in whatever order tests run.
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    real, sources = MachineCodeCompiler.object_code, []

    def counting(self: MachineCodeCompiler, batch: Any) -> bytes:
        sources.extend(batch.values())
        return real(self, batch)

    monkeypatch.setattr(MachineCodeCompiler, "object_code", counting)
    return sources


def test_a_text_is_compiled_once(compiled: list[str]) -> None:
    assert [run(3), run(4), run(3)] == [3, 4, 3]
    assert compiled == [source(3), source(4)]
    (path, _) = sorted(OBJECTS.folder().glob("*.o"))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [0, 10, 40, -1])
def test_damaged_files_are_compiled_again(compiled: list[str], size: int) -> None:
    run(3)
    (path,) = OBJECTS.folder().glob("*.o")
    content = path.read_bytes()
    path.write_bytes(content[:size])
    assert run(3) == 3
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 8
    path.write_bytes(flipped)
    assert run(3) == 3 and len(compiled) == 3
    path.chmod(0o666)  # Others may have written it.
    assert run(3) == 3 and len(compiled) == 4


def test_what_decides_the_code_is_in_the_key(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(3)
    monkeypatch.setattr(llvm_engine, "PASSES", "other")
    run(3)
    assert len(compiled) == 2


def test_a_folder_that_cannot_be_written_costs_nothing_else(
    compiled: list[str], tmp_path: Path
) -> None:
    (tmp_path / "objects").write_text("no folder")
    assert run(3) == 3 and run(3) == 3


def test_a_lock_is_given_up_though_a_forked_process_lives(compiled: list[str]) -> None:
    with OBJECTS.making("key"):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        (path,) = OBJECTS.folder().glob("*.lock")
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


PROCESS = """
import sys, time
from fusewright.runtime import llvm_engine
real = llvm_engine.MachineCodeCompiler.object_code
def counting(self, sources):
    with open(sys.argv[1], "a") as file:
        file.write("compiled\\n")
    time.sleep(0.5)
    return real(self, sources)
llvm_engine.MachineCodeCompiler.object_code = counting
llvm_engine.compile_batch({"k": sys.argv[2]})
"""


def test_processes_at_once_compile_a_kernel_once(tmp_path: Path) -> None:
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "FUSEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    words = [sys.executable, "-c", PROCESS, str(tmp_path / "log"), source(5)]
    processes = [subprocess.Popen(words, env=environment) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "compiled\n"


def test_the_command(compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def command(*words: str) -> str:
        done = CliRunner().invoke(app, ["cache", *words])
        assert done.exit_code == 0, done.output
        return done.output

    run(3)
    assert "machine code of CPU kernels: 1 file, 0.0 MiB of at most 1,024" in command("info")
    file = tmp_path / "exported"
    assert "1 files written" in command("export", str(file))
    command("clear")
    assert "CPU kernels: 0 files" in command("info")
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "other"))
    assert "1 files read" in command("import", str(file))
    assert run(3) == 3 and len(compiled) == 1
    file.write_bytes(file.read_bytes()[:-1])
    refused = CliRunner().invoke(app, ["cache", "import", str(file)])
    assert refused.exit_code == 1 and "it was cut off" in refused.output
