"""Builds the device `ember`: generates its operators, compiles them, and loads the library.

python -m examples.external_backend.build
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.utils import cpp_extension

from fusewright.opgen import generate, write_files

SOURCES = Path(__file__).parent
_FLAGS = ["-std=c++20", "-O1", "-fPIC", "-DNDEBUG"]
_WARNINGS = ["-Wall", "-Wextra", "-Werror"]
_INCLUDES = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]


def build() -> Path:
    """The shared library, compiled where it is not there yet: in one unit, since most of the time
    goes to torch's headers.
    """
    files = generate((SOURCES / "ember.yaml").read_text(), file="ember.yaml", targets=["cpp"])
    for name in ("device.cpp", "kernels.cpp"):
        files["RegisterEmber.cpp"] += (SOURCES / name).read_text()
    return build_library(files, [], Path(tempfile.gettempdir()) / f"ember-{os.getuid()}")


def build_library(files: Mapping[str, str], sources: Sequence[Path], folder: Path) -> Path:
    """A library of generated files and sources of the backend's own.

    `folder` holds what is generated and compiled. Names there say what a file was made from, so
    that nothing is compiled twice.
    """
    generated = folder / _digest(*files.values())
    write_files(files, generated)
    units = [generated / name for name in files if name.endswith(".cpp")]
    headers = [text for name, text in files.items() if name.endswith(".h")]
    objects = [_compile(unit, generated, headers) for unit in (*units, *sources)]
    library = folder / f"libember-{_digest(*(path.name for path in objects))}.so"
    if not library.exists():
        compile_library(library, objects)
    return library


def compile_library(library: Path, parts: Sequence[Path]) -> None:
    """Link sources, objects and libraries with torch's."""
    folders = [(f"-L{path}", f"-Wl,-rpath,{path}") for path in cpp_extension.library_paths()]
    torch_libraries = [*itertools.chain(*folders), "-ltorch", "-ltorch_cpu", "-lc10"]
    _make(library, ["g++", "-shared", *_FLAGS, *_INCLUDES, *map(str, parts), *torch_libraries])


def _digest(*texts: str) -> str:
    text = "\0".join([torch.__version__, *_FLAGS, *_WARNINGS, *texts])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _compile(unit: Path, generated: Path, headers: Sequence[str]) -> Path:
    target = generated.parent / f"{unit.stem}-{_digest(unit.read_text(), *headers)}.o"
    if not target.exists():
        _make(target, ["g++", *_FLAGS, *_WARNINGS, *_INCLUDES, f"-I{generated}", "-c", str(unit)])
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

    device = contextlib.nullcontext
    """A context in which a device is the current one: there is no other."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        """No dtype for automatic mixed precision: it computes in float32."""
        return []

    @staticmethod
    def memory_allocated() -> int:
        """Bytes held by live tensors."""
        return int(torch.ops.ember.memory_allocated())


def load(library: Path | None = None) -> None:
    """Make `torch.device("ember")` known to this process."""
    if hasattr(torch, "ember"):
        return
    torch.ops.load_library(str(library or build()))
    torch.utils.rename_privateuse1_backend("ember")
    torch._register_device_module("ember", EmberModule)
    torch.utils.generate_methods_for_privateuse1_backend()


if __name__ == "__main__":
    print(build())
