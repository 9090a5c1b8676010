"""Programs as they are on a GPU, kept as text in `traced/`, compiled to machine code without a GPU:

    python -m tests.gpu.traced_programs [--architectures 80 90] [--corpora models patterns samples]
        [--part K/N] [WORD …]

They are scheduled, verified, written as kernels and as a module around them, and each kernel is
compiled for GPUs of these compute capabilities. `--part K/N` takes every N-th program, from the
K-th on; words choose programs by their names.
Prints what fails, or keeps in memory what registers should hold, and ends with 1 if something did.
`tests.gpu.pretended.trace` writes the texts anew, and `tests.gpu.traced_counts` counts what models'
programs launch and call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.group import Schedule
from fusewright.ir.kernel import Kernel
from fusewright.ir.lines import DefineDevice, Line
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Program
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.ir.verify_lines import verify_lines
from fusewright.kernels import KernelSet, Languages, define_kernels
from fusewright.kernels.batching import Batcher, with_batches
from fusewright.packages.constants import constant_row
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.spills import spilled_bytes
from fusewright.runtime.targets import source_of
from fusewright.runtime.triton_compiler import SCRATCH, compile_request, parameter_count
from fusewright.schedule import schedule
from fusewright.wrapper import (
    PythonModule,
    batch_launches,
    emit_module,
    generate_lines,
    pack_native,
    plan_memory,
)

FOLDER: Final = Path(__file__).parent / "traced"
FILES: Final = {corpus: FOLDER / f"{corpus}.txt" for corpus in ("models", "samples", "patterns")}

ARCHITECTURES: Final = (80, 90)
"""Compute capabilities of an A100 and an H100."""


def texts(corpora: Iterable[str] = FILES) -> Iterator[tuple[str, str]]:
    """The programs' names, each with its text."""
    for corpus in corpora:
        for text in FILES[corpus].read_text().split("\n\n"):
            yield text.removeprefix("program ").partition("(")[0], text


def code_of(program: Program) -> tuple[Schedule, KernelSet]:
    """The schedule and the kernels of a program, with the module around them (`module_of`)."""
    scheduled, kernels, _ = module_of(program)
    return scheduled, kernels


def module_of(program: Program) -> tuple[Schedule, KernelSet, tuple[Line, ...]]:
    """The schedule, the kernels and the wrapper lines of a program; each stage's result is
    verified, and the module around the kernels is written.
    """
    verify_program(program)
    context = CompileContext(options=Options(verify=True))
    languages = Languages(context.options)
    scheduled = schedule(program, context, languages.limits_of)
    verify_schedule(scheduled)
    kernels = define_kernels(scheduled, context, languages)
    lines = generate_lines(scheduled, kernels.definitions, kernels.launches)
    lines = batch_launches(lines, Batcher(), program.hints, program.released_inputs)
    kernels = with_batches(kernels, scheduled, lines)
    lines = plan_memory(lines, program.hints, program.released_inputs)
    verify_lines(lines)
    check_module(program.name, lines, emit_module(program.name, lines))
    return scheduled, kernels, lines


def check_module(name: str, lines: Sequence[Line], module: PythonModule) -> None:
    """What surrounds the kernels is Python, and packages hold its constants."""
    compile(module.text, name, "exec")
    devices = {line.slot: line.device for line in lines if isinstance(line, DefineDevice)}
    for constant in pack_native(lines, module.places).constants:
        constant_row(constant, devices)


def compiled(kernel: Kernel, source: TritonSource, architecture: int, folder: Path) -> Any:
    """What Triton makes of a kernel; `folder` is for its source. Raises what Triton raises."""
    request = CompileRequest(
        name=kernel.name,
        source=kernel.source,
        signature={**source.parameters, **dict.fromkeys(source.blocks, "constexpr")},
        blocks=dict(source.blocks),
        architecture=architecture,
        warps=source.warps,
        debug=source.checks_bounds,
        stages=source.stages,
        aligned=source.pointers,
    )
    return compile_request(request, folder)


def why_not_launched(kernel: Kernel, architecture: int, folder: Path) -> str | None:
    """Compile a kernel; why it cannot be launched, or would be slow, or None."""
    source = source_of(kernel)
    if not isinstance(source, TritonSource):
        return None
    try:
        made = compiled(kernel, source, architecture, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if parameter_count(made.asm["ptx"]) < len(source.parameters):
        return "parameters are missing in the assembly"
    if "add.s16x2" in made.asm["ptx"]:
        return "the assembly packs sums, which NVIDIA's assembler gets wrong"
    if spilled := spilled_bytes(made.asm["cubin"], made.asm["ptx"]):
        return f"each thread keeps {spilled} bytes in memory for want of registers"
    scratch = [name for name in SCRATCH if getattr(made.metadata, name, 0)]
    return f"asks for {scratch}" if scratch else None


def failures_of(kernels: Iterable[Kernel], architectures: Sequence[int]) -> Iterator[str]:
    """Compile kernels for GPUs of these compute capabilities; a text for each that cannot be
    launched.
    """
    with tempfile.TemporaryDirectory() as folder:
        for kernel in kernels:
            for architecture in architectures:
                reason = why_not_launched(kernel, architecture, Path(folder))
                if reason is not None:
                    yield f"{kernel.name} for sm_{architecture} FAILS: {reason}\n{kernel.source}"


def main() -> int:
    """Do what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.traced_programs", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--architectures", type=int, nargs="+", default=ARCHITECTURES)
    parser.add_argument("--corpora", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--part", default="1/1", metavar="K/N")
    options = parser.parse_args()
    start = time.perf_counter()
    first, step = map(int, options.part.split("/"))
    chosen = [
        text
        for name, text in texts(options.corpora)
        if not options.words or any(word in name for word in options.words)
    ][first - 1 :: step]
    kernels: dict[str, Kernel] = {}
    for text in chosen:
        _, code = code_of(parse_program(text))
        kernels |= {kernel.key: kernel for kernel in code.definitions}
    failures = 0
    for failure in failures_of(kernels.values(), options.architectures):
        failures += 1
        print(failure)
    seconds = time.perf_counter() - start
    print(f"{len(chosen)} programs, {len(kernels)} kernels in {seconds:.0f} s, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
