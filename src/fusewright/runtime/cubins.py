"""Machine code of kernels for GPUs, and where it is kept on disk: one file for each way to compile
a kernel, read without Triton.

A file is a line of JSON and the code. It is written whole, so that processes may share the folder;
one that is damaged, or that another user could have written, counts as missing. When files come to
more than `ROOM` bytes, those that were not read for longest are removed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from fusewright.records import record
from fusewright.runtime.folders import generated_folder

FORMAT: Final = 1
"""Number of the format of files: others are not read."""

ROOM: Final = 1 << 30
"""Bytes that files may come to: some ten thousand kernels."""

KEPT: Final = ROOM * 3 // 4
"""Bytes that are left when some have to go."""

PRUNE_EVERY: Final = 64
"""Files that a process writes between two looks at all of them; the first is one of those looks."""


@record(kw_only=True)
class CompileRequest:
    """All that decides the machine code of a kernel."""

    name: str
    """What the function is called, and profilers show."""

    source: str
    signature: Mapping[str, str]
    """Types of the arguments by name, block sizes as `constexpr`."""

    blocks: Mapping[str, int]
    architecture: int
    """CUDA's compute capability: 90 for H100 and H200."""

    warps: int
    debug: bool
    """Whether assertions are kept."""

    aligned: int
    """How many arguments, the first ones, are pointers to multiples of 16 bytes."""

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in type(self).__annotations__})

    @classmethod
    def from_json(cls, text: str) -> CompileRequest:
        return cls(**json.loads(text))


@record(kw_only=True)
class Cubin:
    """The machine code of one kernel, with what a launch has to know."""

    code: bytes
    function: str
    """Its name in the code."""

    warps: int
    shared_bytes: int
    parameters: int
    """How many the function takes: behind those of the source, Triton's own."""

    scratch_bytes: int
    """How much scratch memory the kernel asks its caller for."""

    def to_bytes(self) -> bytes:
        names = [name for name in type(self).__annotations__ if name != "code"]
        head = {name: getattr(self, name) for name in names}
        line = json.dumps({"format": FORMAT, "digest": _digest(self.code), **head})
        return line.encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Cubin | None:
        """None: this is no machine code in today's format, or damaged."""
        line, _, code = data.partition(b"\n")
        try:
            head: dict[str, Any] = json.loads(line)
            if head.pop("format") != FORMAT or head.pop("digest") != _digest(code):
                return None
            return cls(code=code, **head)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def read(request: CompileRequest) -> Cubin | None:
    """The machine code for a request, if it was compiled before."""
    path = _path(request)
    try:
        with path.open("rb") as file:
            cubin = Cubin.from_bytes(file.read()) if _is_private(file.fileno()) else None
    except OSError:
        return None
    if cubin is not None:
        with suppress(OSError):  # A folder that is only read keeps what it has.
            os.utime(path)
    return cubin


def write(request: CompileRequest, cubin: Cubin) -> None:
    """Keep machine code. What cannot be written, on a full disk say, is compiled again."""
    try:
        path = _path(request)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.write(cubin.to_bytes())
        os.replace(temporary, path)
    except OSError:
        return
    if next(_WRITTEN) % PRUNE_EVERY == 0:
        prune()


def prune() -> None:
    """Remove the files that were used longest ago, where all come to more than `ROOM`; also what
    processes that ended while they wrote left behind. Another process may remove the same.
    """
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for path in folder().iterdir():
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= ROOM:
        return
    for _, size, path in sorted(files):
        with suppress(OSError):
            path.unlink()
        total -= size
        if total <= KEPT:
            return


_WRITTEN: Final = itertools.count()
"""How many files this process has written."""


def folder() -> Path:
    """Where machine code is kept."""
    return generated_folder() / "cubins"


def _path(request: CompileRequest) -> Path:
    key = _digest(_compilers_identity() + request.to_json().encode())
    return folder() / f"{key}.cubin"


@cache
def _compilers_identity() -> bytes:
    """What decides the machine code beside the request: the compiler, and the functions that
    kernels call.
    """
    functions = Path(__file__).with_name("triton_functions.py").read_bytes()
    settings = {
        name: value for name, value in os.environ.items() if name.startswith("TRITON_PTXAS")
    }
    version = importlib.metadata.version("triton")
    return json.dumps([FORMAT, version, sorted(settings.items())]).encode() + functions


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _is_private(descriptor: int) -> bool:
    """Whether nobody but this user can have written an open file."""
    status = os.fstat(descriptor)
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
