"""Counts of what the programs of models do on a GPU, one line a program, so that a change shows:

    python -m tests.gpu.traced_counts

writes `traced/counts.txt` anew from `traced/models.txt`; read the difference before committing it.

- launches: of kernels on the GPU, and of what writes their tables of arguments;
- calls: of the library;
- ensured: results of calls that are copied where the library lays them out in another way;
- copies: launches that move elements and compute nothing, as a change of layout does;
- MiB moved: by kernels, as `schedule.traffic` counts them;
- MiB at most: memory that is planned to be alive at once, without inputs.
"""

from __future__ import annotations

import sys
from typing import Final

from fusewright.ir.group import Group, Store
from fusewright.ir.kernel import KernelFacts, Launch, TritonFacts
from fusewright.ir.lines import CallExtern, CallExternOut, CallKernel, EnsureLayout
from fusewright.ir.parse import parse_program
from fusewright.ir.program import Program
from fusewright.ir.value import Load
from fusewright.runtime.argument_tables import MOST_VALUES
from fusewright.schedule.traffic import group_traffic
from fusewright.wrapper.memory import peak_bytes
from tests.gpu.traced_programs import FOLDER, module_of, texts

FILE: Final = FOLDER / "counts.txt"
MIB: Final = 1 << 20


def counts_of(program: Program) -> str:
    """The line of a program."""
    scheduled, kernels, lines = module_of(program)
    facts = {kernel.name: kernel.facts for kernel in kernels.definitions}
    launches = sum(
        launches_of(line.launch, facts[line.launch.kernel])
        for line in lines
        if isinstance(line, CallKernel)
    )
    groups = [work for work in scheduled.works if isinstance(work, Group)]
    moved = sum(group_traffic(group, program.hints).total for group in groups)
    return (
        f"{program.name}: {launches} launches, "
        f"{sum(isinstance(line, CallExtern | CallExternOut) for line in lines)} calls, "
        f"{sum(isinstance(line, EnsureLayout) for line in lines)} ensured, "
        f"{sum(map(copies, groups))} copies, {moved / MIB:.1f} MiB moved, "
        f"{peak_bytes(lines, program.hints) / MIB:.1f} MiB at most"
    )


def launches_of(launch: Launch, facts: KernelFacts) -> int:
    """Launches on a GPU that one of a kernel takes, with those that write its table."""
    if not isinstance(facts, TritonFacts):
        return 0
    values = len(facts.launches) + len(launch.buffers)
    return 1 + (-(-values // MOST_VALUES) if facts.launches else 0)


def copies(group: Group) -> bool:
    """Whether it moves elements and computes nothing. A conversion is no copy."""
    actions = [action for stage in group.stages for action in stage.actions]
    types = {buffer.name: buffer.layout.dtype for buffer in group.writes}
    return all(
        isinstance(action, Store)
        and isinstance(action.value, Load)
        and action.value.dtype == types.get(action.buffer)
        for action in actions
    )


def counts() -> str:
    """The lines of all programs of models."""
    return "".join(f"{counts_of(parse_program(text))}\n" for _, text in texts(["models"]))


def main() -> int:
    FILE.write_text(counts())
    return 0


if __name__ == "__main__":
    sys.exit(main())
