"""The bytecode of CPython 3.11."""

from __future__ import annotations

from collections.abc import Sequence
from opcode import cmp_op

from fusewright.capture.bytecode.versions.version import CLOSURE, Emission, Version


def call(count: int, keywords: tuple[str, ...]) -> Sequence[Emission]:
    """Names of keyword arguments are set aside by an instruction of their own before the call."""
    names = [("KW_NAMES", keywords)] if keywords else []
    return [*names, ("PRECALL", count), ("CALL", count)]


VERSION = Version(
    caches={
        "BINARY_OP": 1,
        "BINARY_SUBSCR": 4,
        "CALL": 4,
        "COMPARE_OP": 2,
        "LOAD_ATTR": 4,
        "LOAD_GLOBAL": 5,
        "LOAD_METHOD": 10,
        "PRECALL": 1,
        "STORE_ATTR": 4,
        "STORE_SUBSCR": 1,
        "UNPACK_SEQUENCE": 1,
    },
    packed={
        "LOAD_GLOBAL": (1, {0: "LOAD_GLOBAL", 1: "LOAD_GLOBAL_NULL"}),
    },
    jumps={
        "JUMP": ("JUMP_FORWARD", "JUMP_BACKWARD"),
        "JUMP_NO_INTERRUPT": ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        "POP_JUMP_IF_FALSE": ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE"),
        "POP_JUMP_IF_TRUE": ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE"),
        "POP_JUMP_IF_NONE": ("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE"),
        "POP_JUMP_IF_NOT_NONE": (
            "POP_JUMP_FORWARD_IF_NOT_NONE",
            "POP_JUMP_BACKWARD_IF_NOT_NONE",
        ),
    },
    jumps_estimated_by_index=False,
    comparisons={("COMPARE_OP", operator): index for index, operator in enumerate(cmp_op)},
    merges_locations=False,
    minimum_stack_size=0,
    checked_local_load="LOAD_FAST",
    null_above_callable=False,
    effects_when_jumping={"FOR_ITER": (1, 0), "SEND": (2, 1)},
    call=call,
    make_closure=(("MAKE_FUNCTION", CLOSURE),),
)
