"""Machine code of kernels for GPUs, and where it is kept on disk: one file for each way to compile
a kernel, read without Triton.

A file is a line of JSON and the code; one that is damaged counts as missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fusewright.records import record
from fusewright.runtime.gpu_code import FORMAT, Cubin
from fusewright.runtime.kept_files import KeptFiles


@record(kw_only=True)
class CompileRequest:
    """All that decides the machine code of a kernel."""

    name: str
    """The name of the function, which profilers show."""

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

    stages: int | None = None
    """Steps of a loop whose loads are on their way at a time."""

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in type(self).__annotations__})

    @classmethod
    def from_json(cls, text: str) -> CompileRequest:
        return cls(**json.loads(text))


def read(request: CompileRequest) -> Cubin | None:
    """The machine code for a request, if it was compiled before."""
    content = FILES.read(_key(request))
    return None if content is None else Cubin.from_bytes(content)


def write(request: CompileRequest, cubin: Cubin) -> None:
    """Keep machine code. What cannot be written, on a full disk say, is compiled again."""
    FILES.write(_key(request), cubin.to_bytes())


FILES: Final = KeptFiles("cubins", ".cubin")
"""Where machine code is kept."""


def _key(request: CompileRequest) -> str:
    identity = _compilers_identity() + request.to_json().encode()
    return hashlib.blake2b(identity, digest_size=20).hexdigest()


@cache
def _compilers_identity() -> bytes:
    """A text of all that decides the machine code beside the request: the compiler, how it is
    called, and the functions that kernels call.
    """
    files = ("triton_functions.py", "triton_compiler.py", "spills.py", "multiprocessors.py")
    sources = b"".join(Path(__file__).with_name(name).read_bytes() for name in files)
    settings = {
        name: value for name, value in os.environ.items() if name.startswith("TRITON_PTXAS")
    }
    version = importlib.metadata.version("triton")
    return json.dumps([FORMAT, version, sorted(settings.items())]).encode() + sources
