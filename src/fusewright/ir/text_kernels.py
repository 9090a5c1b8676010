"""The text form of kernels: `parse_forms` reads it back."""

from __future__ import annotations

from collections.abc import Iterable

from fusewright.ir.kernel import STAGES, CpuFacts, Kernel, KernelArgument, KernelFacts, TritonFacts


def print_kernel(kernel: Kernel, *, source: bool = True) -> str:
    """A kernel's head: name, language, key, facts, arguments, sizes; then its source behind
    bars.
    """
    head = f"kernel {kernel.name} in {kernel.language} key {kernel.key!r}"
    rows = [f"{head} {print_facts(kernel.facts)}"]
    rows += print_arguments(kernel.arguments)
    rows += [f"  size {name}" for name in kernel.sizes]
    if source:
        rows += [f"  | {row}" if row else "  |" for row in kernel.source.split("\n")]
    return "\n".join(rows)


def print_arguments(arguments: Iterable[KernelArgument]) -> list[str]:
    """A row for each tensor argument."""
    kinds = {False: "read", True: "write"}
    return [f"  {kinds[a.is_written]} {a.name}: {a.dtype}" for a in arguments]


def print_facts(facts: KernelFacts) -> str:
    """The facts that launches of a kernel have in common, in one row."""
    match facts:
        case CpuFacts(grain=grain):
            return f"grain {grain}"
        case TritonFacts(types=types, blocks=blocks, warps=warps, stages=stages):
            sized = ", ".join(f"{name} {size}" for name, size in blocks)
            staged = "" if stages == STAGES else f" stages {stages}"
            asserts = " asserts" if facts.checks_bounds else ""
            several = f" launches [{', '.join(map(str, facts.launches))}]" if facts.launches else ""
            own = f"blocks [{sized}] types [{', '.join(types)}]"
            return f"warps {warps}{staged} {own}{asserts}{several}"
