"""Choices among alternatives of several launches, decided ahead of time where programs are tuned.

What is found is kept where calls look for it (`runtime.choices`), so that a choice which depends on
no size is filled in before memory is planned, and one for any size finds its first class decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.ir.kernel import Kernel
from fusewright.ir.lines import Allocate, Alternative, CallKernel, DefineChoice
from fusewright.kernels.candidates import CandidateSet
from fusewright.kernels.random_arguments import CannotTry, RandomArguments, span_of
from fusewright.kernels.tuning import Functions, Tuner, grain_of, load_kernels
from fusewright.records import replace
from fusewright.runtime import trials
from fusewright.runtime.choices import (
    Decision,
    keep_decision,
    kept_key,
    known_decision,
    size_class,
)
from fusewright.runtime.trials import Tuned


def decide_choices(
    choices: Mapping[str, DefineChoice],
    structures: Mapping[str, CandidateSet],
    kernels: Mapping[str, Kernel],
    tuner: Tuner,
) -> tuple[Tuned, ...]:
    """Decide the choices about which nothing is known yet. They, and the groups whose work they do,
    are by structure of the groups; `kernels` by name.
    """
    return tuple(
        _decided(choice, structures[structure], kernels, tuner)
        for structure, choice in choices.items()
    )


def _decided(
    choice: DefineChoice, among: CandidateSet, kernels: Mapping[str, Kernel], tuner: Tuner
) -> Tuned:
    """The decision of a choice: a kept one, or one that is made now."""
    names = tuple(alternative.name for alternative in choice.alternatives)
    untried = Tuned(
        kind="choice",
        kernel=choice.name,
        candidates=names,
        decision=Decision(winner=0, seconds=(None,) * len(names)),
        was_kept=False,
        argument_bytes=0,
        untried_because="",
    )
    try:
        arguments = RandomArguments(among.group, among.names, tuner.hints)
    except CannotTry as reason:
        return replace(untried, untried_because=str(reason))
    sizes = [int(number) for number in arguments.sizes.values()]
    key = kept_key(choice.key, among.group.device, size_class(sizes))
    known = known_decision(key, names)
    if known is not None:
        return replace(untried, decision=known, was_kept=True)
    if not_now := trials.why_not_now():
        return replace(untried, untried_because=not_now)
    launched = _kernels_of(choice)
    functions = load_kernels({name: kernels[name] for name in launched}, among.language)
    with torch_compat.without_modes(), torch.no_grad():
        try:
            tensors = arguments.tensors()
        except RuntimeError as error:
            return replace(untried, untried_because=f"it has no arguments: {error}")
        memory = {own.name: t for own, t in zip(choice.arguments, tensors, strict=True)}
        runs = [
            partial(_run, _steps(alternative, kernels, functions, arguments), memory)
            for alternative in choice.alternatives
        ]
        with trials.TRYING:
            decision = trials.decided(tuner.time(runs, arguments.device))
    keep_decision(key, names, decision)
    argument_bytes = sum(tensor.nbytes for tensor in tensors)
    return replace(untried, decision=decision, argument_bytes=argument_bytes)


def _kernels_of(choice: DefineChoice) -> list[str]:
    """The kernels that alternatives launch, each once."""
    lines = (line for alternative in choice.alternatives for line in alternative.lines)
    return list(dict.fromkeys(line.launch.kernel for line in lines if isinstance(line, CallKernel)))


_Step = Callable[[dict[str, torch.Tensor]], object]
"""Allocates a buffer, or launches a kernel, on tensors by name."""


def _steps(
    alternative: Alternative,
    kernels: Mapping[str, Kernel],
    functions: Functions,
    arguments: RandomArguments,
) -> list[_Step]:
    """The steps of an alternative, in order; its own buffers are freed with the call."""
    steps: list[_Step] = []
    for line in alternative.lines:
        match line:
            case Allocate(buffer=buffer):
                dtype = getattr(torch, buffer.layout.dtype.torch_name)
                span = span_of(buffer.layout, arguments.sizes)
                make = partial(torch.empty, span, dtype=dtype, device=arguments.device)
                steps.append(partial(_allocate, buffer.name, make))
            case CallKernel(launch=launch):
                numbers = [size.evaluate(arguments.sizes) for size in launch.sizes]
                units = launch.units.evaluate(arguments.sizes)
                last = [units, *grain_of(kernels[launch.kernel])]
                function = functions[launch.kernel]
                steps.append(partial(_launch, function, launch.buffers, (*numbers, *last)))
    return steps


def _run(steps: list[_Step], memory: Mapping[str, torch.Tensor]) -> None:
    own = dict(memory)
    for step in steps:
        step(own)


def _allocate(name: str, make: Callable[[], torch.Tensor], memory: dict[str, torch.Tensor]) -> None:
    memory[name] = make()


def _launch(
    function: Callable[..., Any] | None,
    names: tuple[str, ...],
    numbers: tuple[int, ...],
    memory: dict[str, torch.Tensor],
) -> None:
    if function is None:
        raise RuntimeError("the kernel cannot be compiled")  # It leaves the alternative out.
    function(*(memory[name] for name in names), *numbers)
