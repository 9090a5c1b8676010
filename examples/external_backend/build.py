"""Builds the device `ember`: generates its operators, compiles them, and loads the library.

python -m examples.external_backend.build
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils import cpp_extension

from fusewright.opgen import generate, write_files

SOURCES = Path(__file__).parent
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DNDEBUG"]


def build(folder: Path | None = None) -> Path:
    """The shared library, compiled where it is not there yet.

    `folder` holds what is generated and compiled; by default one in the temporary folder. Names
    there say what a file was made from, so that nothing is compiled twice.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"ember-{os.getuid()}"
    files = generate((SOURCES / "ember.yaml").read_text(), file="ember.yaml", targets=["cpp"])
    generated = folder / _digest(*files.values())
    write_files(files, generated)
    units = [generated / "RegisterEmber.cpp", SOURCES / "device.cpp", SOURCES / "kernels.cpp"]
    headers = [text for name, text in files.items() if name.endswith(".h")]
    objects = [_compile(unit, generated, headers) for unit in units]
    library = folder / f"libember-{_digest(*(path.name for path in objects))}.so"
    if not library.exists():
        paths = [
            flag
            for path in cpp_extension.library_paths()
            for flag in (f"-L{path}", f"-Wl,-rpath,{path}")
        ]
        names = ["-ltorch", "-ltorch_cpu", "-lc10"]
        _make(library, ["g++", "-shared", *map(str, objects), *paths, *names])
    return library


def _digest(*texts: str) -> str:
    text = "\0".join([torch.__version__, *FLAGS, *texts])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _compile(unit: Path, generated: Path, headers: Sequence[str]) -> Path:
    target = generated.parent / f"{unit.stem}-{_digest(unit.read_text(), *headers)}.o"
    if not target.exists():
        includes = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
        _make(target, ["g++", *FLAGS, *includes, f"-I{generated}", "-c", str(unit)])
    return target


def _make(target: Path, command: list[str]) -> None:
    """Run a command that writes `target`, which appears when it is whole: another process may be
    making the same.
    """
    partial = target.with_suffix(f".{os.getpid()}")
    subprocess.run([*command, "-o", str(partial)], check=True)
    partial.rename(target)


class EmberModule:
    """What torch looks for under `torch.ember`."""

    @staticmethod
    def is_available() -> bool:
        """Always: its memory is the host's."""
        return True

    @staticmethod
    def device_count() -> int:
        """One."""
        return 1

    @staticmethod
    def current_device() -> int:
        """The first and only."""
        return 0

    @staticmethod
    def memory_allocated() -> int:
        """Bytes held by live tensors."""
        return int(torch.ops.ember.memory_allocated())


def load() -> None:
    """Make `torch.device("ember")` known to this process."""
    if hasattr(torch, "ember"):
        return
    torch.ops.load_library(str(build()))
    torch.utils.rename_privateuse1_backend("ember")
    torch._register_device_module("ember", EmberModule)
    torch.utils.generate_methods_for_privateuse1_backend()


if __name__ == "__main__":
    print(build())
