"""The devices that kernels are written for: a `Target` for each type of device, in one table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.config import Options
from fusewright.errors import UnsupportedOperator
from fusewright.ir.limits import (
    FEW_HALF_ROWS,
    FEW_ROWS_OF_PAIRS,
    PLAIN,
    Limits,
    cpu_limits,
)
from fusewright.kernels import llvm, triton
from fusewright.kernels.language import Chaining, KernelLanguage, one_way
from fusewright.kernels.llvm import chains
from fusewright.records import record, replace
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.targets import loader_of


@record(kw_only=True)
class Target:
    """A type of device, as the compiler knows it."""

    device_type: str
    """The type of device as torch names it: `cpu`, `cuda`."""

    language: Callable[[Options], KernelLanguage]
    """The language of kernels for it, which also loads them."""


def _llvm(options: Options) -> KernelLanguage:
    """LLVM IR for this machine, or the processor that is asked for."""
    name = options.kernel_target
    cpu = cpu_target(name)
    limits = PLAIN
    has_choices = options.has_choices_on("cpu")
    if cpu.vector_bytes:
        threads = torch.get_num_threads() if has_choices else None
        few = FEW_ROWS_OF_PAIRS if cpu.multiplies_pairs else FEW_HALF_ROWS
        limits = cpu_limits(
            cpu.library_types,
            threads=threads,
            few_half_rows=few,
            has_pairs=cpu.multiplies_pairs and not cpu.has_tiles,
        )
    return KernelLanguage(
        name="cpu",
        write=functools.partial(llvm.write, target=cpu),
        load=loader_of("cpu"),
        candidates=functools.partial(llvm.candidates, target=cpu),
        products=llvm.PRODUCT_TYPES if cpu.vector_bytes else frozenset(),
        ways=functools.partial(llvm.ways, target=cpu, limits=limits) if has_choices else one_way,
        chaining=Chaining(
            ways_to_cut=functools.partial(chains.ways_to_cut, target=cpu),
            keeps_to_pieces=functools.partial(chains.keeps_to_pieces, target=cpu),
            join=functools.partial(chains.join, target=cpu),
        ),
        limits=limits,
        target="" if name == "auto" else name,
    )


def _triton(options: Options) -> KernelLanguage:
    """Triton source, which is compiled for the GPU that it is launched on."""
    has_choices = options.has_choices_on("cuda")
    limits = triton.limits(has_choices=has_choices)
    return KernelLanguage(
        name="triton",
        write=triton.write_work,
        load=loader_of("triton"),
        candidates=functools.partial(
            triton.candidates, rounds=torch_compat.states.matmul_precision("cuda") == "tf32"
        ),
        products=triton.PRODUCT_TYPES,
        product_forms=triton.PRODUCT_FORMS,
        ways=functools.partial(triton.ways, limits=limits) if has_choices else one_way,
        limits=limits,
    )


TARGETS: Final = {
    target.device_type: target
    for target in (
        Target(device_type="cpu", language=_llvm),
        Target(device_type="cuda", language=_triton),
    )
}
"""All targets, by type of device."""


class Languages:
    """The languages that kernels are written in: one for all, or on each device its target's."""

    def __init__(
        self,
        options: Options,
        language: KernelLanguage | None = None,
        trials: dict[str, Any] | None = None,
        *,
        has_chains: bool = False,
    ) -> None:
        self.options = options
        self.has_chains = has_chains
        """Whether launches become one that hand memory on which is too large to be whole."""

        self.language = language
        self.by_type: dict[str, KernelLanguage] = {}
        self.trials: dict[str, Any] = {} if trials is None else trials
        """By key, what this compile has tried of kernels so far (`kernels.tuning`)."""

        self.tuner: Any = None
        """What tries them, once something is to be tried."""

    def without_choices(self) -> Languages:
        """The same, where nothing is left to measuring: rules decide how work is done."""
        options = dataclasses.replace(self.options, multi_kernel="off")
        return Languages(options, self.language, self.trials, has_chains=self.has_chains)

    def without_chains(self) -> Languages:
        """The same, where what is handed on from launch to launch is made as a whole."""
        return Languages(self.options, self.language, self.trials)

    def of(self, device: str) -> KernelLanguage:
        """The language on a device, such as `cuda:1`. UnsupportedOperator: it has none."""
        if self.language is not None:
            return self.language
        kind = device.partition(":")[0]
        language = self.by_type.get(kind)
        if language is None:
            if kind not in TARGETS:
                raise UnsupportedOperator(
                    f"tensors on {device}: no kernels are written for that device yet"
                )
            language = self.by_type[kind] = TARGETS[kind].language(self.options)
        return language

    def limits_of(self, device: str) -> Limits:
        """The limits of a device, which scheduling has to know."""
        if self.language is None and device.partition(":")[0] not in TARGETS:
            return PLAIN  # it will be refused, or there is nothing to compute
        limits = self.of(device).limits
        return limits if self.has_chains else replace(limits, chains=False)

    def require(self, devices: Iterable[str]) -> None:
        """UnsupportedOperator: some device has no language. Tensors on meta have no memory, and no
        kernel takes them.
        """
        for device in sorted(set(devices) - {"meta"}):
            self.of(device)
