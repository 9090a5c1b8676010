"""Kernels for GPUs, as packages hold them: machine code for kinds of GPUs, with pointers of one
alignment or of any, loaded without Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import PackageRefused
from fusewright.ir.kernel import TABLE_PARAMETERS
from fusewright.native import _extension
from fusewright.packages.container import PackageFile
from fusewright.runtime import argument_tables, cuda_driver
from fusewright.runtime.cuda_driver import DriverRefused, architecture_of
from fusewright.runtime.gpu_code import Cubin


def section_of(entry: str, kernel: str, architecture: int, aligned: bool) -> str:
    """The name of the section that holds machine code of a kernel."""
    return f"{entry}.{kernel}.sm_{architecture}.{'aligned' if aligned else 'any'}"


def fitting(architecture: int, architectures: list[int]) -> int | None:
    """The best of the kinds of GPUs that code was compiled for which runs on this kind: of the same
    generation, and no later.
    """
    fit = [own for own in architectures if own // 10 == architecture // 10 and own <= architecture]
    return max(fit, default=None)


def check_gpus(path: str, manifest: Mapping[str, Any]) -> None:
    """Raises: PackageRefused, where this machine lacks a GPU that the package was made for."""
    for name in manifest["devices"]:
        kinds = ", ".join(f"sm_{kind}" for kind in manifest["gpus"]) or "any kind"
        made_for = f"it was made for {name}, of {kinds}"
        index = torch.device(name).index or 0
        if not torch.cuda.is_available():
            raise PackageRefused(path, f"{made_for}, and torch finds no GPU here")
        if index >= torch.cuda.device_count():
            raise PackageRefused(path, f"{made_for}, and there is no such GPU here")
        own = architecture_of(index)
        if manifest["gpus"] and fitting(own, manifest["gpus"]) is None:
            raise PackageRefused(path, f"{made_for}, and {name} is of sm_{own} here")


class PackagedKernel:
    """One kernel of a package, on every GPU that its machine code is for."""

    def __init__(self, file: PackageFile, entry: str, row: Mapping[str, Any]) -> None:
        self.name: str = row["name"]
        self._file = file
        self._entry = entry
        self._tensors: int = row["tensors"]
        self._letters: str = row["letters"]
        self._widths = bytes(row["widths"])
        self._first_values = bytes.fromhex(row.get("first_values", ""))
        """The numbers that its table of arguments begins with; empty: it has none."""

    def launcher(self) -> Callable[..., None]:
        """The function that is called with tensors, sizes and a number of programs; it launches on
        the current stream of the tensors' GPU.
        """
        return _extension.GpuKernel(
            self.name,
            self._tensors,
            self._letters,
            self._launch_functions(),
            torch_compat.cuda.stream,
            self.prepare,
            self._never_eager,
            self._widths,
            self._first_values,
        )

    def prepare(self, device: int, aligned: bool) -> tuple[int, ...]:
        """Load the machine code for a GPU, as `CudaKernel.prepare`. Raises: PackageRefused."""
        own = architecture_of(device)
        architecture = fitting(own, self._file.manifest["gpus"])
        if architecture is None:
            raise self._refused(f"{self.name} was not compiled for sm_{own}")
        section = section_of(self._entry, self.name, architecture, aligned)
        cubin = Cubin.from_bytes(bytes(self._file.section(section)))
        if cubin is None:
            raise self._refused(f"its section {section!r} is no machine code of today's format")
        try:
            room = cuda_driver.shared_bytes(device)
            if cubin.shared_bytes > room:
                wanted = f"{cubin.shared_bytes} bytes of shared memory of {room}"
                raise self._refused(f"{self.name} needs {wanted} on GPU {device}")
            if not self._first_values:
                return cuda_driver.prepare(device, cubin, self._tensors + len(self._letters))
            code = cuda_driver.prepare(device, cubin, len(TABLE_PARAMETERS))
            return *code, *argument_tables.writer(device, self._first_values, self._tensors)
        except DriverRefused as failure:
            raise self._refused(str(failure)) from None

    def _launch_functions(self) -> tuple[int, int, int]:
        try:
            return cuda_driver.launch_functions()
        except DriverRefused as failure:
            raise self._refused(str(failure)) from None

    def _never_eager(self, *_: Any) -> None:
        raise self._refused(f"{self.name} has no machine code")

    def _refused(self, reason: str) -> PackageRefused:
        return PackageRefused(str(self._file.path), reason)
