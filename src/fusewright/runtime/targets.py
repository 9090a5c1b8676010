"""Loaders of kernels by the language that they are written in: what a generated module calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fusewright.ir.kernel import CpuFacts, Kernel, TritonFacts
from fusewright.runtime import cpu, cuda
from fusewright.runtime.cpu import KernelSource
from fusewright.runtime.cuda import TritonSource

Source = KernelSource | TritonSource

Loader = Callable[[Mapping[str, Any]], tuple[Callable[..., Any], ...]]
"""Makes kernels of sources by name, in order. A kernel takes its tensors, its sizes, the units of
work of the launch, and on the CPU the fewest of them worth a thread of their own.
"""

_LOADERS: Final[dict[str, Loader]] = {"cpu": cpu.load_kernels, "triton": cuda.load_kernels}

_BEGINNINGS: Final[dict[str, Callable[[], None]]] = {"cuda": cuda.begin}
"""By type of device, what is called before a graph with tensors there is compiled."""


def begin(device_types: Iterable[str]) -> None:
    """Begin what takes its time, before a graph with tensors on such devices is compiled."""
    for device_type in sorted({*device_types} & _BEGINNINGS.keys()):
        _BEGINNINGS[device_type]()


def source_of(kernel: Kernel) -> Source:
    """A kernel as its loader takes it."""
    match kernel.facts:
        case CpuFacts():
            return KernelSource(
                language=kernel.language,
                key=kernel.key,
                tensors=len(kernel.arguments),
                sizes=len(kernel.sizes),
                text=kernel.source,
            )
        case TritonFacts(types=types) as facts:
            names = (*(argument.name for argument in kernel.arguments), *kernel.sizes)
            return TritonSource(
                language=kernel.language,
                key=kernel.key,
                tensors=len(kernel.arguments),
                signature=dict(zip(names, types, strict=True)),
                blocks=dict(facts.blocks),
                warps=facts.warps,
                checks_bounds=facts.checks_bounds,
                stages=facts.stages,
                launches=facts.launches,
                text=kernel.source,
            )


def register_loader(name: str, loader: Loader) -> None:
    """Load kernels of a language by `loader`. ValueError: there is another one for it."""
    if _LOADERS.setdefault(name, loader) is not loader:
        raise ValueError(f"kernels of {name!r} have a loader already")


def load_kernels(sources: Mapping[str, Source]) -> tuple[Callable[..., Any], ...]:
    """The kernels of a generated module in order, those of each language made together."""
    kernels: dict[str, Callable[..., Any]] = {}
    for language in dict.fromkeys(source.language for source in sources.values()):
        alike = {name: source for name, source in sources.items() if source.language == language}
        kernels.update(zip(alike, loader_of(language)(alike), strict=True))
    return tuple(kernels[name] for name in sources)


def loader_of(language: str) -> Loader:
    """The function that makes the kernels of a language. RuntimeError: nothing was registered for
    it.
    """
    loader = _LOADERS.get(language)
    if loader is None:
        raise RuntimeError(
            f"kernels of {language!r} have no loader in this process: import the package that "
            "registers it"
        )
    return loader
