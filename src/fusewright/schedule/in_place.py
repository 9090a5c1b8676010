"""New values of inputs computed in the inputs' own memory, instead of being copied there after the
call.

    mutation buf5 of arg0             buf5 takes over arg0's memory: no allocation, no copy
    group … [i0<65536]        ->
      reads arg0[i0], writes buf5[i0]

An input must keep its old value until its last reader has run, and until nothing can raise any
more: a call that raises is run again, or has changed nothing. Kernels that the program wrote may
come later: it is only when they are first compiled that they raise, and that is marked then.

A scatter that checks all of its indices before it changes anything is such a last step: what it
adds to an input's elements, it adds there.

Rows stored into an input that nobody else reads, as the keys and values of tokens are into a cache
of fixed size, need not wait: whoever runs the call again stores to the same elements, and what
eager raises behind its store, it raises with the store done. Several stores into one input may
follow each other so, if nothing reads it between them. Sums cannot be done again; the least and the
largest can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fusewright.ir.group import Accumulate, Group, StepWork, action_roots
from fusewright.ir.index import Index, LoopSymbol, Symbol
from fusewright.ir.program import Buffer, CallUserKernel, CopyBack, Program, UnfilledMemory
from fusewright.ir.raising import early_checks, value_may_raise
from fusewright.ir.value import Load, Random, Value, postorder
from fusewright.records import record
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.effects import buffers_used, output_buffers

CPU: Final = "cpu"

REPEATABLE: Final = frozenset({"store", "min", "max"})
"""Modes of scatters that change nothing when they are done again."""


def written_in_place(program: Program, works: Sequence[StepWork]) -> dict[str, str]:
    """The input whose memory each buffer that is a mutation's new value is written to."""
    if not program.mutations:
        return {}
    targets = dict(program.mutations)
    analysis = Analysis(program)
    buffers = analysis.buffers
    positions = _positions(program)
    scatters = _scatters_into_inputs(program, works)
    targets |= {scatter.buffer: scatter.base for scatter in scatters.values()}
    continued = {scatter.base: scatter.buffer for scatter in scatters.values()}
    read_later = {analysis.memory(name) for name in output_buffers(program)}
    checked = _checked_before(program, works, analysis) if len(scatters) > 1 else frozenset()
    end = first_raising = len(program.statements)
    in_place: dict[str, str] = {}
    for work in reversed(works):
        scatter = scatters.get(id(work))
        raises_first = scatter is not None and scatter.raises_first
        is_checked = raises_first and id(work) in checked
        raises = may_raise(work) and not is_checked and not isinstance(work, CallUserKernel)
        if raises and not raises_first:
            first_raising = min(first_raising, _first_position(work, positions))
        is_last = first_raising == end
        is_early = (
            scatter is not None
            and scatter.is_repeatable
            and positions[scatter.buffer] < first_raising
        )
        for name, source in work.reuses if isinstance(work, Group) else ():
            if (
                targets.get(name) == source
                and (is_last or is_early)
                and source not in read_later
                and (name not in continued or continued[name] in in_place)
                and _is_same_place(buffers[name], buffers[source])
            ):
                in_place[name] = source
        if scatter and raises:
            first_raising = min(first_raising, positions[scatter.buffer])
        read_later |= {analysis.memory(name) for name in buffers_used(work)}
    return in_place


def may_raise(work: StepWork) -> bool:
    """Whether a step may fail at run time: any library call, a checked index, a division by 0."""
    match work:
        case Group():
            return any(value_may_raise(value) for value in _values(work))
        case _:
            return not isinstance(work, CopyBack | UnfilledMemory)


def _values(group: Group) -> tuple[Value, ...]:
    roots = [root for stage in group.stages for root in action_roots(*stage.actions)]
    return tuple(postorder(tuple(roots)))


def _positions(program: Program) -> dict[str, int]:
    """The place among the program's statements of what makes each buffer."""
    return {
        buffer.name: position
        for position, statement in enumerate(program.statements)
        for buffer in statement.outputs
    }


def _first_position(work: StepWork, positions: Mapping[str, int]) -> int:
    """The place in the program, at least, of what may raise in a step: any for a group, which may
    compute what was computed far before it.
    """
    outputs = () if isinstance(work, Group) else work.outputs
    return min((positions[buffer.name] for buffer in outputs), default=-1)


@record
class ScatterIntoInput:
    """What a group scatters into an input, or into what others have scattered into it before."""

    buffer: str
    base: str
    """The buffer of before, which the group does not read otherwise."""

    raises_first: bool
    """Whether it changes nothing where it raises: the indices are all that may raise, and a kernel
    for the CPU checks them ahead. On a GPU a check that fails ends all.
    """

    is_repeatable: bool
    """Whether a second run of the call changes nothing more: it finds the same elements, at indices
    computed of integers that the call is given, and nobody else uses the base.
    """


def _scatters_into_inputs(
    program: Program, works: Sequence[StepWork]
) -> dict[int, ScatterIntoInput]:
    """By the identity of a group, what it does on the way from an input to its new value."""
    uses = Counter(name for work in works for name in buffers_used(work))
    known = frozenset(buffer.name for buffer in (*program.inputs, *program.constants))
    makers = {b.name: work for work in works if isinstance(work, Group) for b in work.writes}
    scatters: dict[int, ScatterIntoInput] = {}
    for new_value, target in program.mutations:
        name = new_value
        on_the_way: dict[int, ScatterIntoInput] = {}
        while name != target and name in makers:
            work = makers[name]
            scatter = _scatter_into(work, name, uses, known)
            if scatter is None:
                break
            on_the_way[id(work)] = scatter
            name = scatter.base
        if name == target:
            scatters |= on_the_way
    return scatters


def _scatter_into(
    group: Group, name: str, uses: Mapping[str, int], known: Collection[str]
) -> ScatterIntoInput | None:
    """The only scatter of a group, where it makes `name`."""
    actions = [action for stage in group.stages for action in stage.actions]
    match [action for action in actions if isinstance(action, Accumulate)]:
        case [Accumulate(buffer=buffer) as scatter] if buffer == name:
            base = dict(group.taken_over)[name]
        case _:
            return None
    values = _values(group)
    if any(isinstance(value, Load) and value.buffer == base for value in values):
        return None
    raising = [value for value in values if value_may_raise(value)]
    checks_first = group.device != CPU or early_checks(group) is not None
    raises_first = not raising or (
        checks_first and all(value in scatter.indirect for value in raising)
    )
    return ScatterIntoInput(
        buffer=name,
        base=base,
        raises_first=raises_first,
        is_repeatable=raises_first
        and scatter.mode in REPEATABLE
        and uses[base] == 1
        and _finds_the_same(scatter, known),
    )


def _checked_before(
    program: Program, works: Sequence[StepWork], analysis: Analysis
) -> frozenset[int]:
    """The identities of groups whose early checks others have made before them: sums and counts of
    clusters, say, are added to two inputs at the same indices.
    """
    replaced = {analysis.memory(target) for _, target in program.mutations}
    known: set[int] = set()
    checked: set[int] = set()
    for group in works:
        checks = early_checks(group) if isinstance(group, Group) else None
        if checks is None or any(
            isinstance(value, Load) and analysis.memory(value.buffer) in replaced
            for value in postorder(checks.indices)
        ):
            continue
        loops: dict[Symbol, Index] = {
            loop: LoopSymbol(f"c{number}", loop.extent).index
            for number, loop in enumerate(checks.loops)
        }
        own = {id(program.expressions.substitute(index, loops)) for index in checks.indices}
        if own <= known:
            checked.add(id(group))
        known |= own
    return frozenset(checked)


def _finds_the_same(scatter: Accumulate, known: Collection[str]) -> bool:
    """Whether the indices of a scatter are the same in each run of a call: computed of integers
    that the call is given (`known`).
    """
    return not any(
        value.dtype.is_float
        or isinstance(value, Random)
        or (isinstance(value, Load) and value.buffer not in known)
        for value in postorder(scatter.indirect)
    )


def _is_same_place(written: Buffer, target: Buffer) -> bool:
    """Whether two layouts put each element in the same place, and no two in one."""
    size, stride = written.layout.size, written.layout.stride
    spread = all(step != 0 or extent == 1 for extent, step in zip(size, stride, strict=True))
    return written.layout == target.layout and spread
