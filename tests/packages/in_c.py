"""Packages that are run by the C library, from Python through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

import fusewright
from fusewright.torch_compat.handles import delete, handles_of, tensor_of

SOURCES = Path(fusewright.__file__).parent / "native" / "standalone"
TORCH = Path(torch.__file__).parent


class Refused(Exception):
    """The C library refuses a package or a call; says why."""


class CLibrary:
    """The C files beside `fusewright_package.h`, as one library."""

    def __init__(self, folder: Path) -> None:
        path = folder / "package.so"
        torch_libraries = (
            f"-L{TORCH / 'lib'}",
            "-Wl,--no-as-needed",
            "-ltorch_cpu",
            "-lc10",
            "-lm",
        )
        files = [*SOURCES.glob("*.c"), "-x", "none", *torch_libraries]
        flags = ["-std=c11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-x", "c"]
        subprocess.run(["gcc", *flags, *map(str, files), "-o", str(path)], check=True)
        self._library = ctypes.CDLL(str(path))
        self._library.fusewright_package_load.restype = ctypes.c_void_p
        self._library.fusewright_package_output_count.restype = ctypes.c_size_t
        self._message = ctypes.create_string_buffer(500)

    def load(self, path: Path) -> CPackage:
        """The entry point `forward` of a package. Raises: Refused."""
        package = self._library.fusewright_package_load(bytes(path), b"forward", self._message, 500)
        if not package:
            raise Refused(self._message.value.decode())
        return CPackage(self._library, ctypes.c_void_p(package), self._message)


class CPackage:
    """A package in the C library's hands."""

    def __init__(
        self, library: ctypes.CDLL, package: ctypes.c_void_p, message: ctypes.Array[ctypes.c_char]
    ) -> None:
        self._library, self._package, self._message = library, package, message

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The tensors among its results. Raises: Refused."""
        held: Sequence[int] = handles_of(inputs)
        count = self._library.fusewright_package_output_count(self._package)
        outputs = (ctypes.c_void_p * count)()
        given = (ctypes.c_void_p * len(held))(*held)
        error = self._library.fusewright_package_run(
            self._package, given, outputs, self._message, 500
        )
        for handle in held:
            delete(handle)
        if error:
            raise Refused(self._message.value.decode())
        return [tensor_of(handle) for handle in outputs]

    def free(self) -> None:
        """Unload it."""
        self._library.fusewright_package_free(self._package)
