"""The meaning of groups and schedules, executable: evaluates what kernels compute with plain torch
operators.

Stages run in order, each at all points of its loops at once, as bodies of programs do: see
`reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from fusewright.ir.group import (
    Accumulate,
    Action,
    Gather,
    Group,
    Reduce,
    ScanStore,
    Schedule,
    Stage,
    Store,
)
from fusewright.ir.program import RowStatement
from fusewright.ir.reference import (
    Evaluation,
    Grid,
    Integer,
    Tensor,
    combine,
    reduce_values,
    scan_values,
)
from fusewright.records import field, record


def evaluate_group(
    group: Group,
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, int | float],
    *,
    float64: bool = False,
) -> None:
    """Do what the kernel of a group does: read and write the memory of tensors, by the names of the
    group's buffers. `sizes`: the value of each size symbol, by name. `float64`: take every floating
    type for f64, which tensors then have. Raises: IndexError, for a load outside its tensor.
    """
    device = next(iter(tensors.values())).device
    evaluation = Evaluation(dict(sizes), float64, device)
    for buffer in {buffer.name: buffer for buffer in (*group.reads, *group.writes)}.values():
        evaluation.adopt(buffer, tensors[buffer.name])
    points = prod(map(evaluation.extent, group.outer))
    rows = {local.name: prod(evaluation.numbers(local.size)) for local in group.locals}
    for local in group.locals:
        dtype = evaluation.torch_type(local.dtype)
        memory = torch.zeros(points * rows[local.name], dtype=dtype, device=device)
        evaluation.memory[local.name] = memory
    for stage in group.stages:
        loops = (*group.outer, *stage.inner)
        walked = len(group.walked)
        _run(stage, _GroupGrid(evaluation, loops, outer=len(group.outer), rows=rows, walked=walked))


RunGroup = Callable[[int, Group, Evaluation], None]
"""Does what the group at this place among a schedule's steps does, in the memory of `Evaluation`,
where what it writes has memory already.
"""


def evaluate_schedule(
    schedule: Schedule,
    arguments: Sequence[Any],
    constants: Mapping[str, Tensor],
    programs: Mapping[str, Callable[..., Any]],
    *,
    run_group: RunGroup | None = None,
    after_step: Callable[[Group | RowStatement, Evaluation], None] = lambda step, evaluation: None,
) -> tuple[Any, ...]:
    """The outputs of a schedule for what compiled code takes: the numbers that its size symbols
    stand for, then the tensors. Every buffer has memory of its own, to the end.

    `constants`: tensors, by name; `programs`: what runs the subprograms, by name. `run_group`: runs
    the groups; by default they are evaluated. `after_step` is called behind each step. Raises as
    `evaluate` does.
    """
    program = schedule.program
    names = [fact.symbol.name for fact in program.input_sizes]
    tensors = arguments[len(names) :]
    device = tensors[0].device if tensors else torch.device("cpu")
    evaluation = Evaluation(dict(zip(names, arguments, strict=False)), False, device)
    for buffer, tensor in zip(program.inputs, tensors, strict=True):
        evaluation.adopt(buffer, tensor)
    for buffer in program.constants:
        evaluation.adopt(buffer, constants[buffer.name])
    for position, step in enumerate(schedule.works):
        if isinstance(step, Group):
            prepare_writes(step, evaluation)
            (run_group or _evaluate_step)(position, step, evaluation)
        else:
            evaluation.execute(step, programs)
        after_step(step, evaluation)
    return tuple(evaluation.operand(operand) for operand in program.outputs)


def prepare_writes(group: Group, evaluation: Evaluation) -> None:
    """Give what a group writes its memory: new, or a copy of what it combines into."""
    bases = dict(group.taken_over)
    for buffer in group.writes:
        evaluation.allocate(buffer)
        if buffer.name in bases:
            evaluation.memory[buffer.name] = evaluation.memory[bases[buffer.name]].clone()


def _evaluate_step(position: int, group: Group, evaluation: Evaluation) -> None:
    evaluate_group(group, evaluation.memory, evaluation.sizes)


@record(frozen=False)
class _GroupGrid(Grid):
    """Values of one stage at all points of the outer and inner loops."""

    outer: int = 0
    """How many of the loops, the first ones, are around all stages."""

    walked: int = 0
    """How many of these, the last ones, are walked over by what gathers along them."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """By local: how many elements it has at each point of the outer loops."""

    def start(self, buffer: str) -> Integer:
        """Where a local's elements of the point begin; memory is shared by all points."""
        if buffer not in self.rows:
            return 0
        around, inside = self.extents[: self.outer], self.extents[self.outer :]
        points = torch.arange(prod(around), device=self.evaluation.device)
        return self.rows[buffer] * points.reshape((*around, *(1 for _ in inside)))


def _run(stage: Stage, grid: _GroupGrid) -> None:
    """Compute all values of a stage, then act on them."""
    values = [grid.spread(action.value) for action in stage.actions]
    for action, value in zip(stage.actions, values, strict=True):
        _act(action, value, grid)


def _rows(grid: _GroupGrid) -> tuple[int, ...]:
    """The extents of the outer loops, and the number of points that the inner ones have."""
    return (*grid.extents[: grid.outer], prod(grid.extents[grid.outer :]))


def _act(action: Action, value: Tensor, grid: _GroupGrid) -> None:
    memory = grid.evaluation.memory
    match action:
        case Store(buffer=buffer, index=index):
            combine(memory[buffer], "store", grid.places_of(buffer, index), value.reshape(-1))
        case ScanStore(buffer=buffer, index=index, kind=kind):
            scanned = scan_values(kind, value.reshape(*_rows(grid))).to(memory[buffer].dtype)
            combine(memory[buffer], "store", grid.places_of(buffer, index), scanned.reshape(-1))
        case Accumulate(buffer=buffer, index=index, indirect=indirect, mode=mode):
            places = grid.places_of(buffer, index, indirect)
            combine(memory[buffer], mode, places, value.reshape(-1))
        case Gather(buffer=buffer, index=index, kind=kind):
            first, last = grid.outer - grid.walked, grid.outer
            points = Grid(grid.evaluation, (*grid.loops[:first], *grid.loops[last:]))
            behind = value.movedim(tuple(range(first, last)), tuple(range(-grid.walked, 0)))
            (totals,) = reduce_values(kind, behind.flatten(-grid.walked))
            places = points.places_of(buffer, index)
            combine(memory[buffer], "store", places, totals.reshape(-1))
        case Reduce(targets=targets, kind=kind):
            gathered = reduce_values(kind, value.reshape(*_rows(grid)))
            for target, result in zip(targets, gathered, strict=True):
                assert result.dtype == memory[target].dtype, f"{kind} gave {result.dtype}"
                memory[target].copy_(result.reshape(-1))
