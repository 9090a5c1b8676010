"""CPU kernels of generated modules: source to callable, once a process for equal source."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fusewright.native import CpuKernel
from fusewright.records import record
from fusewright.runtime.llvm_engine import compile_batch


@record(kw_only=True)
class KernelSource:
    """A kernel as a generated module carries it."""

    device: str
    key: str
    """Hash of the source: equal keys share machine code."""

    tensors: int
    """How many tensor arguments come first."""

    sizes: int
    """How many integer arguments follow."""

    text: str


_LOADED: dict[tuple[str, str], CpuKernel] = {}
_LOADING = threading.Lock()


def load_kernels(sources: Mapping[str, KernelSource]) -> tuple[CpuKernel, ...]:
    """Compile what this process has not compiled yet, in one batch, and return the kernels in
    order.
    """
    with _LOADING:
        missing = {
            name: source for name, source in sources.items() if (name, source.key) not in _LOADED
        }
        if missing:
            library = compile_batch({name: source.text for name, source in missing.items()})
            for name, source in missing.items():
                address = library.addresses[name]
                kernel = CpuKernel(address, source.tensors, source.sizes, name)
                _LOADED[name, source.key] = kernel
        return tuple(_LOADED[name, source.key] for name, source in sources.items())
