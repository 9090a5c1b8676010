"""Launches that hand memory on and become one: which of them, and what is not made any more."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.forms import print_lines
from fusewright.ir.index import integer
from fusewright.ir.kernel import Kernel, KernelArgument, Launch
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.program import Buffer
from fusewright.ir.verify_lines import verify_lines
from fusewright.records import replace
from fusewright.wrapper.chains import MemoryUse, chain_launches
from tests.golden import golden


class ByName:
    """Chains begin and end with kernels that are named as products; those of another number of
    pieces, behind the last `_`, are other chains.
    """

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self.kernels = kernels

    def pieces(self, uses: Sequence[MemoryUse], buffer: Buffer) -> str | None:
        ends = (uses[0].launch.kernel, uses[-1].launch.kernel)
        are_products = all("product" in name for name in ends)
        ways_to_cut = {name.rpartition("_")[2] for name in ends}
        return ways_to_cut.pop() if are_products and len(ways_to_cut) == 1 else None

    def join(
        self,
        uses: Sequence[MemoryUse],
        own: Sequence[Buffer],
        others: Sequence[Buffer],
        pieces: str,
    ) -> tuple[Kernel, Launch] | None:
        left = {buffer.name for buffer in own}
        arguments: dict[str, KernelArgument] = {}
        for use in uses:
            kernel = self.kernels[use.launch.kernel]
            for name, argument in zip(use.memory, kernel.arguments, strict=True):
                if name not in left:
                    arguments.setdefault(name, argument)
        names = [use.launch.kernel for use in uses]
        first = self.kernels[names[0]]
        name = f"cpu_chain_{len(names)}_{pieces}"
        kernel = replace(first, name=name, key=name, arguments=tuple(arguments.values()))
        launch = replace(
            uses[0].launch, kernel=name, buffers=tuple(arguments), units=integer(int(pieces))
        )
        return kernel, launch


@golden("cases/chains.txt")
def test_chains(text: str) -> str:
    lines = parse_lines(text)
    verify_lines(lines)
    kernels = {line.kernel.name: line.kernel for line in lines if hasattr(line, "kernel")}
    chained, _ = chain_launches(lines, ByName(kernels))
    verify_lines(chained)
    printed = print_lines(chained)
    assert print_lines(parse_lines(printed)) == printed
    return printed
