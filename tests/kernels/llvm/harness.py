"""Runs one group, given as text, as an LLVM kernel on real tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fusewright.ir.canonical import CanonicalNames, canonical_group, canonical_names
from fusewright.ir.parse import parse_group
from fusewright.kernels import llvm
from fusewright.runtime.cpu import CpuFunction, KernelSource, compile_kernels
from fusewright.runtime.llvm_engine import CpuTarget, MachineCodeCompiler, cpu_target
from fusewright.runtime.memory_checks import MemoryChecks


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel, its source, and how to call it by the group's own names."""

    source: str
    names: CanonicalNames
    work: llvm.Work
    kernel: CpuFunction

    def __call__(self, tensors: Mapping[str, torch.Tensor], **sizes: int) -> None:
        """Run on tensors by buffer name and sizes by symbol name."""
        own = {canonical.name: sizes[symbol.name] for canonical, symbol in self.names.sizes}
        arguments = [tensors[name] for name in self.names.buffers]
        units = self.work.units.evaluate(own)
        self.kernel(*arguments, *own.values(), units, self.work.facts.grain)


def write_group(
    text: str, target: CpuTarget | None = None
) -> tuple[str, llvm.Work, CanonicalNames]:
    """The source of a group's kernel."""
    group = parse_group(text)
    names = canonical_names(group)
    sizes = tuple(canonical for canonical, _ in names.sizes)
    tensors = [argument.name for argument in names.arguments]
    source, work = llvm.write(canonical_group(group, names), tensors, sizes, target or cpu_target())
    return source, work, names


def build(
    text: str, target: CpuTarget | None = None, checks: MemoryChecks | None = None
) -> BuiltKernel:
    """Compile a group for a target (vectors of its width, this machine's instructions). Memory is
    checked as the environment says, unless told here.
    """
    source, work, names = write_group(text, target)
    tensors, sizes = len(names.arguments), len(names.sizes)
    one = KernelSource(language="cpu", key="", tensors=tensors, sizes=sizes, text=source)
    kernels = compile_kernels({"kernel": one}, checks or MemoryChecks.chosen())
    return BuiltKernel(source, names, work, kernels["kernel"])


def assembly(text: str, target: CpuTarget) -> str:
    """The assembly of a group's kernel, for a target that need not be this machine."""
    return MachineCodeCompiler(target).assembly({"kernel": write_group(text, target)[0]})
