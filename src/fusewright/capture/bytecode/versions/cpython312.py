"""The bytecode of CPython 3.12."""

from __future__ import annotations

from collections.abc import Sequence
from opcode import cmp_op

from fusewright.capture.bytecode.versions.version import CLOSURE, Emission, Version

COMPARISON_OUTCOMES = {"<": 2, "<=": 2 | 8, "==": 8, "!=": 1 | 2 | 4, ">": 4, ">=": 4 | 8}
"""The outcomes under which an operator holds, which the specialised comparison reads from the
operand's low bits: 1 unordered, 2 less, 4 greater, 8 equal."""


def call(count: int, keywords: tuple[str, ...]) -> Sequence[Emission]:
    """Names of keyword arguments are set aside by an instruction of their own before the call."""
    names = [("KW_NAMES", keywords)] if keywords else []
    return [*names, ("CALL", count)]


VERSION = Version(
    caches={
        "BINARY_OP": 1,
        "BINARY_SUBSCR": 1,
        "CALL": 3,
        "COMPARE_OP": 1,
        "FOR_ITER": 1,
        "LOAD_ATTR": 9,
        "LOAD_GLOBAL": 4,
        "LOAD_SUPER_ATTR": 1,
        "SEND": 1,
        "STORE_ATTR": 4,
        "STORE_SUBSCR": 1,
        "UNPACK_SEQUENCE": 1,
    },
    packed={
        "LOAD_ATTR": (1, {0: "LOAD_ATTR", 1: "LOAD_METHOD"}),
        "LOAD_GLOBAL": (1, {0: "LOAD_GLOBAL", 1: "LOAD_GLOBAL_NULL"}),
        "LOAD_SUPER_ATTR": (
            2,
            {
                0: "LOAD_ZERO_SUPER_ATTR",
                1: "LOAD_ZERO_SUPER_METHOD",
                2: "LOAD_SUPER_ATTR",
                3: "LOAD_SUPER_METHOD",
            },
        ),
    },
    jumps={
        "JUMP": ("JUMP_FORWARD", "JUMP_BACKWARD"),
        "JUMP_NO_INTERRUPT": ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    },
    jumps_estimated_by_index=False,
    comparisons={
        ("COMPARE_OP", operator): index << 4 | COMPARISON_OUTCOMES[operator]
        for index, operator in enumerate(cmp_op)
    },
    merges_locations=True,
    minimum_stack_size=0,
    checked_local_load="LOAD_FAST_CHECK",
    null_above_callable=False,
    effects={"END_FOR": (2, 0)},
    skipped_at_loop_end=("END_FOR",),
    call=call,
    make_closure=(("MAKE_FUNCTION", CLOSURE),),
)
