"""Launches that become one: which of them, where it stands, and what waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.forms import print_lines
from fusewright.ir.index import integer
from fusewright.ir.kernel import BatchedKernel, Kernel, KernelArgument, TritonFacts
from fusewright.ir.parse_forms import parse_lines
from fusewright.ir.verify_lines import verify_lines
from fusewright.records import replace
from fusewright.wrapper.batches import batch_launches
from tests.golden import golden


class ByName:
    """Kernels named alike but for their last part can be batched; six arguments are the most.
    Those of scales have no table.
    """

    def structure(self, kernel: Kernel) -> str | None:
        alike = kernel.name.rpartition("_")[0]
        return alike if alike.startswith("triton_") else None

    def most(self, arguments: int) -> int:
        return 6 // arguments

    def is_worth(self, launches: int, arguments: int) -> bool:
        return launches > 1

    def batch(self, kernels: Sequence[Kernel], places: Sequence[int]) -> BatchedKernel:
        own: dict[int, KernelArgument] = {}
        for argument, place in zip(kernels[0].arguments, places, strict=True):
            is_shared = place in own
            own[place] = replace(argument, name="inout0") if is_shared else argument
        arguments = tuple(
            replace(argument, name=f"{argument.name}_{number}")
            for number in range(len(kernels))
            for argument in own.values()
        )
        letters = "".join(kernel.name.rpartition("_")[2] for kernel in kernels)
        name = f"{kernels[0].name.rpartition('_')[0]}_batch_{letters}"
        assert isinstance(kernels[0].facts, TritonFacts)
        types, count = ("*fp32",) * len(arguments), len(kernels)
        if "_scale_" in name:
            sizes = tuple(f"s0_{number}" for number in range(count))
            facts = replace(kernels[0].facts, types=(*types, *("i32",) * count))
            kernel = replace(
                kernels[0],
                name=name.rpartition("_")[0],
                arguments=arguments,
                sizes=sizes,
                facts=facts,
            )
            return BatchedKernel(kernel, integer(count), sizes=(integer(8),) * count)
        table = KernelArgument(name="table", dtype=DType.I64, is_written=True)
        facts = replace(kernels[0].facts, types=(*types, "*i64"), launches=(8,) * count)
        kernel = replace(kernels[0], name=name, arguments=(*arguments, table), facts=facts)
        return BatchedKernel(kernel, integer(count), values=count + len(arguments))


@golden("cases/batches.txt")
def test_batches(text: str) -> str:
    lines = parse_lines(text)
    verify_lines(lines)
    batched = batch_launches(lines, ByName(), {}, frozenset({"released"}))
    verify_lines(batched)
    printed = print_lines(batched)
    assert print_lines(parse_lines(printed)) == printed
    return printed
