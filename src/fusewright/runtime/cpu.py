"""CPU kernels of generated modules: source to callable, one for equal source. Machine code is freed
with the last module that calls it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from fusewright.native import CpuKernel
from fusewright.records import record
from fusewright.runtime.guard_pages import GuardedKernel, with_guarded_rows
from fusewright.runtime.llvm_engine import compile_batch
from fusewright.runtime.memory_checks import MemoryChecks, with_garbage_in_locals


@record(kw_only=True)
class KernelSource:
    """A kernel as a generated module carries it."""

    language: str
    key: str
    """Hash of all that decides the machine code: equal keys share it."""

    tensors: int
    """How many tensor arguments come first."""

    sizes: int
    """How many integer arguments follow."""

    text: str


CpuFunction = Callable[..., None]
"""A `CpuKernel`, or what calls one."""

_LOADED: WeakValueDictionary[tuple[str, str, MemoryChecks], CpuFunction] = WeakValueDictionary()
"""The kernels that generated modules of this process still use."""

_LOADING = threading.Lock()


def load_kernels(sources: Mapping[str, KernelSource]) -> tuple[CpuFunction, ...]:
    """Compile what this process has not compiled yet, in one batch, and return the kernels in
    order.
    """
    checks = MemoryChecks.chosen()
    with _LOADING:
        kernels = {
            name: _LOADED.get((name, source.key, checks)) for name, source in sources.items()
        }
        missing = {name: sources[name] for name, kernel in kernels.items() if kernel is None}
        if missing:
            for name, kernel in compile_kernels(missing, checks).items():
                kernels[name] = _LOADED[name, missing[name].key, checks] = kernel
    return tuple([kernel for kernel in kernels.values() if kernel is not None])


def compile_kernels(
    sources: Mapping[str, KernelSource], checks: MemoryChecks
) -> dict[str, CpuFunction]:
    """Kernels by name, which run under these checks."""
    texts = {name: _checked_text(source.text, checks) for name, source in sources.items()}
    library = compile_batch(texts)
    kernels = {
        name: CpuKernel(library.addresses[name], source.tensors, source.sizes, name, library)
        for name, source in sources.items()
    }
    if not checks.guard_pages:
        return dict(kernels)
    return {
        name: GuardedKernel(kernel, texts[name], checks.guard_pages)
        for name, kernel in kernels.items()
    }


def _checked_text(text: str, checks: MemoryChecks) -> str:
    if checks.guard_pages:
        text = with_guarded_rows(text)
    return with_garbage_in_locals(text) if checks.garbage else text
