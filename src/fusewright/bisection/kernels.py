"""Runs a schedule step by step with compiled kernels, each on what eager operators have computed
before it, and compares what each writes with the same loops in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusewright.bisection.differences import Difference, Expected, difference
from fusewright.bisection.double import widened
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError
from fusewright.ir.group import Group, Schedule
from fusewright.ir.kernel import CpuFacts, Kernel, Launch
from fusewright.ir.reference import Evaluation
from fusewright.ir.reference_groups import RunGroup, evaluate_group, prepare_writes
from fusewright.kernels import define_kernels
from fusewright.records import record
from fusewright.runtime.cpu import KernelSource, compile_kernels
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.runtime.targets import load_kernels, source_of

CHECKS = MemoryChecks(guard_pages="both", garbage=True)
"""Kernels on the CPU run between pages that may not be touched."""

NOISY_RUNS = 2


class KernelDiffers(FusewrightError):
    """A kernel does not compute what its loops say."""

    def __init__(
        self,
        kernel: str,
        group: Group,
        buffer: str,
        differs: Difference | None,
        cause: Exception | None,
        inputs: Mapping[str, torch.Tensor],
        sizes: Mapping[str, int | float],
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.buffer = buffer
        """The buffer that it writes wrong; empty where it raised."""
        self.differs = differs
        """The difference; None where it raised."""
        self.cause = cause
        self.inputs = dict(inputs)
        """Its inputs, by buffer: elements as they lie in memory."""
        self.sizes = dict(sizes)
        what = f"{type(cause).__name__}: {cause}" if differs is None else differs.detail
        super().__init__(f"kernel {kernel}, {buffer}: {what}")


@record(frozen=False)
class KernelCheck:
    """Runs the groups of a schedule as kernels."""

    schedule: Schedule
    context: CompileContext
    checked: int = 0
    """The number of launches compared."""

    def run_group(self) -> RunGroup:
        """The function to run groups by. Its calls raise KernelDiffers for the first that
        is wrong.
        """
        kernels = define_kernels(self.schedule, self.context)
        kernels_by_name = {kernel.name: kernel for kernel in kernels.definitions}
        loaded: dict[str, Callable[..., Any]] = {}

        def run(position: int, group: Group, evaluation: Evaluation) -> None:
            launch = kernels.launch(position)
            kernel = kernels_by_name[launch.kernel]
            check_launch(kernel, launch, group, evaluation, loaded)
            self.checked += 1

        return run


def check_launch(
    kernel: Kernel,
    launch: Launch,
    group: Group,
    evaluation: Evaluation,
    loaded: dict[str, Callable[..., Any]],
) -> None:
    """Launch a kernel, and compare what it writes. Raises KernelDiffers."""
    written = {buffer.name for buffer in group.writes}
    read = {
        buffer.name: evaluation.memory[buffer.name].clone()
        for buffer in group.reads
        if buffer.name not in written
    }
    expected = _expected(group, read, evaluation)

    def failed(buffer: str, differs: Difference | None, cause: Exception | None) -> KernelDiffers:
        sizes = evaluation.sizes
        return KernelDiffers(kernel.name, group, buffer, differs, cause, read, sizes)

    bases = dict(group.taken_over)
    for buffer in group.writes:
        if buffer.name not in bases:  # what a kernel does not write shows
            _fill(evaluation.memory[buffer.name])
    try:
        if kernel.name not in loaded:
            loaded[kernel.name] = load(kernel)
        loaded[kernel.name](*_arguments(kernel, launch, evaluation))
    except Exception as error:
        raise failed("", None, error) from error
    layouts = {buffer.name: buffer.layout for buffer in group.writes}
    for name, layout in layouts.items():
        differs = difference(evaluation.view(name, layout), expected[name])
        if differs is not None:
            raise failed(name, differs, None)


def load(kernel: Kernel) -> Callable[..., Any]:
    """A kernel that can be called; on the CPU between guard pages."""
    source = source_of(kernel)
    if isinstance(source, KernelSource):
        return compile_kernels({kernel.name: source}, CHECKS)[kernel.name]
    return load_kernels({kernel.name: source})[0]


def _arguments(kernel: Kernel, launch: Launch, evaluation: Evaluation) -> list[Any]:
    """The arguments of a launch: tensors, sizes, units of work, and on the CPU the grain."""
    tensors = [evaluation.view(name, evaluation.layouts[name]) for name in launch.buffers]
    sizes = evaluation.numbers(launch.sizes)
    units = evaluation.number(launch.units)
    grain = [kernel.facts.grain] if isinstance(kernel.facts, CpuFacts) else []
    return [*tensors, *sizes, units, *grain]


def _expected(
    group: Group, read: Mapping[str, torch.Tensor], evaluation: Evaluation
) -> dict[str, Expected]:
    """The results of a group, by buffer: with the types that it has, and in double precision."""
    native = _evaluated(group, read, evaluation, float64=False)
    exact = _evaluated(group, read, evaluation, float64=True)
    dtypes = [
        tensor.dtype for tensor in (*read.values(), *native.values()) if tensor.is_floating_point()
    ]
    unit = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
    noisy = [
        _evaluated(group, _disturbed(read, unit, seed), evaluation, float64=True)
        for seed in range(NOISY_RUNS if unit else 0)
    ]
    return {
        name: Expected(
            eager=value, exact=exact[name], noisy=tuple(results[name] for results in noisy)
        )
        for name, value in native.items()
    }


def _disturbed(
    tensors: Mapping[str, torch.Tensor], unit: float, seed: int
) -> dict[str, torch.Tensor]:
    """The tensors in double precision, each number changed by a unit of rounding at most."""
    random = torch.Generator().manual_seed(seed)
    disturbed = {}
    for name, value in tensors.items():
        wide = widened(value)
        if wide.dtype is torch.float64:
            noise = torch.rand(wide.shape, generator=random, dtype=torch.float64) * 2 - 1
            wide = wide * (1 + unit * noise.to(wide.device))
        disturbed[name] = wide
    return disturbed


def _evaluated(
    group: Group, read: Mapping[str, torch.Tensor], around: Evaluation, *, float64: bool
) -> dict[str, torch.Tensor]:
    """The results of a group evaluated on copies of its inputs."""
    evaluation = Evaluation(dict(around.sizes), float64, around.device)
    evaluation.layouts = dict(around.layouts)
    for name, value in read.items():
        evaluation.memory[name] = (widened(value) if float64 else value).clone()
    prepare_writes(group, evaluation)
    evaluate_group(group, evaluation.memory, evaluation.sizes, float64=float64)
    return {buffer.name: evaluation.view(buffer.name, buffer.layout) for buffer in group.writes}


def _fill(memory: torch.Tensor) -> None:
    """Bytes that are NaN, -1 or 255."""
    whole = torch.empty(0, dtype=torch.uint8, device=memory.device)
    whole.set_(memory.untyped_storage()).fill_(0xFF)
