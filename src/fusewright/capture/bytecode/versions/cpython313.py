"""The bytecode of CPython 3.13."""

from __future__ import annotations

from collections.abc import Sequence
from opcode import cmp_op

from fusewright.capture.bytecode.versions import cpython312
from fusewright.capture.bytecode.versions.version import CLOSURE, Emission, Version


def call(count: int, keywords: tuple[str, ...]) -> Sequence[Emission]:
    """Names of keyword arguments are pushed above the arguments."""
    if keywords:
        return [("LOAD_CONST", keywords), ("CALL_KW", count)]
    return [("CALL", count)]


VERSION = Version(
    caches={
        "BINARY_OP": 1,
        "BINARY_SUBSCR": 1,
        "CALL": 3,
        "COMPARE_OP": 1,
        "CONTAINS_OP": 1,
        "FOR_ITER": 1,
        "JUMP_BACKWARD": 1,
        "LOAD_ATTR": 9,
        "LOAD_GLOBAL": 4,
        "LOAD_SUPER_ATTR": 1,
        "POP_JUMP_IF_FALSE": 1,
        "POP_JUMP_IF_NONE": 1,
        "POP_JUMP_IF_NOT_NONE": 1,
        "POP_JUMP_IF_TRUE": 1,
        "SEND": 1,
        "STORE_ATTR": 4,
        "STORE_SUBSCR": 1,
        "TO_BOOL": 3,
        "UNPACK_SEQUENCE": 1,
    },
    packed=cpython312.VERSION.packed,
    jumps=cpython312.VERSION.jumps,
    jumps_estimated_by_index=True,
    local_pairs={
        "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
        "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    },
    comparisons={
        (name, operator): index << 5 | to_bool << 4 | cpython312.COMPARISON_OUTCOMES[operator]
        for index, operator in enumerate(cmp_op)
        for to_bool, name in enumerate(("COMPARE_OP", "COMPARE_OP_TO_BOOL"))
    },
    closure_is_local_load=True,
    merges_locations=True,
    minimum_stack_size=1,
    checked_local_load="LOAD_FAST_CHECK",
    null_above_callable=True,
    effects={"END_FOR": (1, 0), "MAKE_FUNCTION": (1, 1)},
    skipped_at_loop_end=("END_FOR", "POP_TOP"),
    raises_before_calls=True,
    call=call,
    make_closure=(("MAKE_FUNCTION", None), ("SET_FUNCTION_ATTRIBUTE", CLOSURE)),
)
