"""Branches on a tensor's value, or on a size that data tells, of which one side raises: checks,
which the graph makes as well.

    if not (scale > 0).all():          _assert_async((scale > 0).all())
        raise ValueError(…)            …
    …

Capture goes on as if the check held. Where it does not, the graph raises, and the call begins again
as it was written (`capture.breaks.graph_failure`): so what the program sees is its own exception,
from its own line. That asks for a graph that may run twice, one that writes to nothing that it is
given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.bytecode.instruction import Instruction
from fusewright.capture.bytecode.liveness import always_raises
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import Unsupported

if TYPE_CHECKING:
    from fusewright.capture.interpreter.frame import Frame

_FAILED = "a check that the program makes did not hold"


def condition(frame: Frame, jump: int, value: Value) -> bool:
    """`bool(value)`, on which the jump at position `jump` depends. Raises Unsupported where that is
    not known, and the branch is no check.
    """
    machine = frame.machine
    try:
        return machine.truth(value)
    except Unsupported as refusal:
        if refusal.reason != reasons.BRANCH_ON_TENSOR.name:
            raise
        expected = _expected(frame, jump) if _may_check(frame, value) else None
        if expected is None:
            raise
    if isinstance(value, SymbolicValue):
        _check_number(frame.machine, value, expected)
    else:
        holds = value if expected else machine.call_graph(torch.logical_not, [value], {})
        machine.call_graph(torch_compat.assert_async, [holds, ConstantValue(_FAILED)], {})
    machine.builder.has_checks = True
    return expected


def _may_check(frame: Frame, value: Value) -> bool:
    """On a GPU, a check of a tensor that fails would end the process's use of it."""
    if not frame.machine.builder.permissions.checks:
        return False
    match value:
        case SymbolicValue():
            return _truth(value).node.depends_on_data()  # type: ignore[no-any-return]
        case TensorValue(fake=fake):
            return fake.device.type == "cpu" and fake.numel() == 1
    return False


def _check_number(machine: Machine, value: SymbolicValue, expected: bool) -> None:
    """Check in the graph whether a number that depends on data is zero, or a condition holds."""
    holds = _truth(value) if expected else torch.sym_not(_truth(value))
    machine.call_graph(torch_compat.check, [SymbolicValue(holds)], {})


def _truth(value: SymbolicValue) -> torch.SymBool:
    is_condition = value.python_type() is bool
    return value.number if is_condition else value.number != 0  # type: ignore[no-any-return]


def _expected(frame: Frame, jump: int) -> bool | None:
    """The truth that a jump's condition must have for the program not to raise; None where it
    raises on either side, or on none.
    """
    instructions = frame.decoded.instructions
    target = instructions[jump].argument
    assert isinstance(target, Instruction), "a conditional jump has a target"
    there = always_raises(instructions, instructions.index(target))
    here = always_raises(instructions, jump + 1)
    if there == here:
        return None
    return here if instructions[jump].name == "POP_JUMP_IF_TRUE" else there
