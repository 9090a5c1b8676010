"""Choices among kernels: what a call of one is in terms of other lines, and filling in those that
are decided.

before                                    after, where `split` won
------                                    ------------------------
kernel cpu_sum_3f …                       kernel cpu_partial_5a …
kernel cpu_partial_5a …                   kernel cpu_total_77 …
kernel cpu_total_77 …                     p: f32[32] = allocate
choice cpu_sum_choice_8b key '…'          launch cpu_partial_5a(x, p) units 32
  read in0: f32                           launch cpu_total_77(p, y) units 1
  write out0: f32                         release p: f32[32]
  alternative looped
    launch cpu_sum_3f(in0, out0) units 1 on caller
  alternative split
    t: f32[32] on caller = allocate
    launch cpu_partial_5a(in0, t) units 32 on caller
    launch cpu_total_77(t, out0) units 1 on caller
    free t
choose cpu_sum_choice_8b(x, y)

A choice that is left in the lines is decided at the first call (`runtime.choices`), for each class
of sizes. One whose winner is known already, from tuning or an earlier process, is filled in before
memory is planned: nothing of it is left in the code, nor are the kernels that lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusewright.ir.forms import buffers_defined
from fusewright.ir.lines import (
    CALLER,
    Allocate,
    Alternative,
    CallChoice,
    CallExternOut,
    CallKernel,
    CopyInto,
    DefineChoice,
    DefineDevice,
    DefineKernel,
    Free,
    FreeIfNotReused,
    Line,
    View,
)
from fusewright.ir.renaming import Renaming
from fusewright.records import replace
from fusewright.runtime.choices import Decision, decision_of_earlier_process


def choices_in(lines: Iterable[Line]) -> dict[str, DefineChoice]:
    """The choices that lines define, by name."""
    return {line.name: line for line in lines if isinstance(line, DefineChoice)}


def launches_kernels_only(choice: DefineChoice) -> bool:
    """Whether nothing but kernels, which memory is told by its address, uses its arguments."""
    return not any(
        isinstance(line, CallExternOut | CopyInto | View)
        for alternative in choice.alternatives
        for line in alternative.lines
    )


def expand(
    choice: DefineChoice, alternative: Alternative, call: CallChoice, taken: Iterable[str] = ()
) -> list[Line]:
    """The lines of an alternative on the buffers and sizes of a call. The buffers that it allocates
    get names that are not `taken`.
    """
    names = [argument.name for argument in choice.arguments]
    buffers = dict(zip(names, call.buffers, strict=True))
    taken = {*taken, *call.buffers}
    for line in alternative.lines:
        for name in buffers_defined(line):
            buffers[name] = free = _free_name(f"{call.buffers[-1]}_{name}", taken)
            taken.add(free)
    renaming = Renaming(
        buffers=buffers,
        sizes=dict(zip(choice.sizes, call.sizes, strict=True)),
        devices={CALLER: call.device},
    )
    lines = [renaming.line(line) for line in alternative.lines]
    return [_told(line, call) for line in lines]


def known_decisions(
    lines: Iterable[Line], forced: int | None, is_kept: bool
) -> dict[str, Decision]:
    """The choices whose winner is known before the first call, by name: the alternative `forced`
    (the last, where there are fewer), or what an earlier process has found; of choices that depend
    on no size.
    """
    lines = list(lines)
    devices = {line.slot: line.device for line in lines if isinstance(line, DefineDevice)}
    called = {line.choice: line.device for line in lines if isinstance(line, CallChoice)}
    known: dict[str, Decision] = {}
    for name, choice in choices_in(lines).items():
        names = [alternative.name for alternative in choice.alternatives]
        if forced is not None:
            winner = min(forced, len(names) - 1)
            known[name] = Decision(winner=winner, seconds=(None,) * len(names), source="forced")
        elif is_kept and not choice.sizes and name in called:
            device = devices.get(called[name], called[name])
            decision = decision_of_earlier_process(choice.key, device, names)
            known.update({name: decision} if decision is not None else {})
    return known


def fill_choices(lines: Sequence[Line], winners: Mapping[str, int]) -> tuple[Line, ...]:
    """`lines` with the lines of the winner, by its number among the alternatives, in place of each
    call of a choice that `winners` has; kernels that are not launched any more are left out.
    """
    choices = choices_in(lines)
    winners = {name: winner for name, winner in winners.items() if name in choices}
    if not winners:
        return tuple(lines)
    taken = {name for line in lines for name in buffers_defined(line)}
    result: list[Line] = []
    for line in lines:
        match line:
            case CallChoice(choice=name) if name in winners:
                alternative = choices[name].alternatives[winners[name]]
                expanded = expand(choices[name], alternative, line, taken)
                taken |= {name for own in expanded for name in buffers_defined(own)}
                result += _to_be_planned(expanded)
            case DefineChoice(name=name) if name in winners:
                pass
            case _:
                result.append(line)
    return without_lost_kernels(lines, result)


def kernels_launched(lines: Iterable[Line]) -> set[str]:
    """The kernels that lines, and alternatives of their choices, launch."""
    names: set[str] = set()
    for line in lines:
        if isinstance(line, CallKernel):
            names.add(line.launch.kernel)
        elif isinstance(line, DefineChoice):
            names.update(
                *(kernels_launched(alternative.lines) for alternative in line.alternatives)
            )
    return names


def without_lost_kernels(before: Iterable[Line], lines: Sequence[Line]) -> tuple[Line, ...]:
    """`lines` without the kernels that are launched no more, as they were `before`."""
    lost = kernels_launched(before) - kernels_launched(lines)
    return tuple(
        line for line in lines if not (isinstance(line, DefineKernel) and line.kernel.name in lost)
    )


def _to_be_planned(lines: Sequence[Line]) -> list[Line]:
    """The lines with buffers released in the form that the memory pass takes."""
    defined = {line.buffer.name: line.buffer for line in lines if isinstance(line, Allocate | View)}
    return [
        FreeIfNotReused(buffer=defined[line.name]) if isinstance(line, Free) else line
        for line in lines
    ]


def _told(line: Line, call: CallChoice) -> Line:
    """A line of an alternative with the origins of the call."""
    match line:
        case CallKernel(launch=launch):
            return replace(line, launch=replace(launch, origins=call.origins))
        case CallExternOut():
            return replace(line, origins=call.origins)
        case _:
            return line


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number, free = number + 1, f"{name}{number}"
    return free
