"""Compile Triton kernels to cubins: `python -m tests.kernels.triton.compile_kernels
[--all | --configurations [WORD]]`

Compiles a kernel of every kind of body for an H100 (sm_90), which needs no GPU; with `--all`, every
operation too; with `--configurations`, all that tuning tries, of the cases that have the word in
their name. Prints one line a kernel, and ends with 1 if one did not compile.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fusewright.context import CompileContext
from fusewright.ir.canonical import CanonicalNames, canonical_group, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.kernels.triton import Configuration, TritonKernel, configuration_of, write
from fusewright.kernels.triton.axis_form import CannotRecompute
from fusewright.kernels.triton.configurations import configurations
from fusewright.runtime.triton_compiler import SCRATCH, compile_kernel, parameter_count
from fusewright.schedule import schedule
from tests.golden import read_cases
from tests.kernels.triton.operators import operator_programs

CASES = Path(__file__).parent / "cases" / "sources.txt"
ARCHITECTURE = 90


def groups(text: str) -> Iterator[tuple[Group, CanonicalNames]]:
    """The groups of a program, under canonical names."""
    for step in schedule(parse_program(text), CompileContext()).works:
        assert isinstance(step, Group)
        names = canonical_names(step)
        yield canonical_group(step, names), names


def written(group: Group, names: CanonicalNames, configuration: Configuration) -> TritonKernel:
    sizes = tuple(canonical for canonical, _ in names.sizes)
    return write(group, names.arguments, sizes, configuration)


def work(everything: bool) -> Iterator[tuple[str, TritonKernel]]:
    """Kernels by the name of what they show, each source once."""
    texts = [(case.name, case.input) for case in read_cases(CASES)]
    if everything:
        texts += operator_programs()
    seen: set[str] = set()
    for name, text in texts:
        for persistent in (None, False) if everything else (None,):
            for group, names in groups(text):
                kernel = written(group, names, configuration_of(group, persistent))
                if kernel.source not in seen:
                    seen.add(kernel.source)
                    yield name, kernel


def tried(word: str) -> Iterator[tuple[str, TritonKernel]]:
    """All that tuning tries of the cases that have a word in their name."""
    for case in read_cases(CASES):
        for group, names in groups(case.input) if word in case.name else ():
            for configuration in (*configurations(group), *configurations(group, rounds=True)):
                with suppress(CannotRecompute):
                    kernel = written(group, names, configuration)
                    yield f"{case.name}, {configuration.words}", kernel


def why_not_used(kernel: TritonKernel, compiled: Any) -> str | None:
    """Why `runtime.cuda` could not launch a kernel, or why its numbers would not be eager's; else
    None. Functions of CUDA's library flush subnormal numbers only inside approximations whose
    error they know.
    """
    if flushing := set(re.findall(r"\S*(?<!\.approx)\.ftz\S*", compiled.asm["ptx"])):
        return f"subnormal numbers count as 0 in {', '.join(sorted(flushing))}"
    if "add.s16x2" in compiled.asm["ptx"]:
        return "it packs sums, which NVIDIA's assembler gets wrong"
    own = sum(kind != "constexpr" for _, kind in kernel.signature)
    hidden = parameter_count(compiled.asm["ptx"]) - own
    if not 0 <= hidden <= 8:
        return f"{hidden} parameters beside its own {own}"
    wanted = [name for name in SCRATCH if getattr(compiled.metadata, name, 0)]
    return f"it asks for {', '.join(wanted)}" if wanted else None


def main(kernels: Iterable[tuple[str, TritonKernel]]) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel in kernels:
            start = time.perf_counter()
            try:
                compiled = compile_kernel(
                    kernel.source,
                    dict(kernel.signature),
                    dict(kernel.blocks),
                    Path(folder),
                    architecture=ARCHITECTURE,
                    warps=kernel.warps,
                    stages=kernel.stages,
                    debug=kernel.checks_bounds,
                )
            except Exception as error:
                failures += 1
                print(f"{name}: {type(error).__name__}: {error}\n{kernel.source}")
                continue
            took = time.perf_counter() - start
            reason = why_not_used(kernel, compiled)
            if reason is not None:
                failures += 1
                print(f"{name}: {reason}")
            print(f"{name}: {len(compiled.asm['cubin'])} bytes, {took:.2f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    flag, word = (*sys.argv[1:], "", "")[:2]
    sys.exit(main(tried(word) if flag == "--configurations" else work(flag == "--all")))
