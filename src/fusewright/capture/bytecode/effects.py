"""How many values each instruction takes off the stack and how many it leaves there.

    consumed(instruction)                   # what it takes, counted from the top
    produced(instruction, jumps=False)      # what stands in that place when it goes on
    produced(instruction, jumps=True)       # … and when it jumps to its target
    skipped_by_jump(instruction)            # where it then really goes on, see there

NULLs count as values. An instruction that looks further down than what it takes (`COPY`, `SWAP`,
`LIST_APPEND`, …) counts as taking all down to the deepest value that it looks at and leaving those
again, so that whoever puts `consumed(instruction)` values on a stack may execute it. What stands
beside the stack is not counted: on 3.11 and 3.12, `KW_NAMES` hands the names of keyword arguments
to the `CALL` after it, so code that begins at such a `CALL` repeats the `KW_NAMES`.

These are the true effects. CPython's compiler counts two groups otherwise, which `dis.stack_effect`
repeats: on 3.11 it lets `PRECALL` take the arguments that `CALL` takes, and before 3.13 a generator
begins with a value on its stack instead of getting it at `RETURN_GENERATOR`.
"""

from __future__ import annotations

from typing import Final

from fusewright.capture.bytecode.instruction import Instruction
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.bytecode.versions.version import Effect
from fusewright.errors import InvalidBytecode


def consumed(instruction: Instruction) -> int:
    """How many values of the stack the instruction takes or looks at."""
    return _effect(instruction, jumps=False)[0]


def produced(instruction: Instruction, jumps: bool) -> int:
    """How many values stand in the place of the consumed ones afterwards.

    `jumps` asks for the instruction's target; it makes no difference to one without a target.
    """
    return _effect(instruction, jumps=jumps)[1]


def skipped_by_jump(instruction: Instruction) -> tuple[str, ...]:
    """The names of instructions at its target that it passes over when it jumps.

    From 3.12 on, `FOR_ITER` at the end of an iteration takes the iterator off the stack itself and
    jumps behind the instructions that stand at its target for that purpose. `produced` counts as
    CPython's compiler does, as if they were executed.
    """
    return VERSION.skipped_at_loop_end if instruction.name == "FOR_ITER" else ()


def _effect(instruction: Instruction, *, jumps: bool) -> tuple[int, int]:
    """Values taken and values left. Raises `InvalidBytecode` for an unknown instruction."""
    name = instruction.name
    effect = WHEN_JUMPING.get(name) if jumps else None
    if effect is None:
        effect = VERSION.effects.get(name) or EFFECTS.get(name)
    if effect is None:
        raise InvalidBytecode(f"{name} is no operation of this Python version")
    return effect if isinstance(effect, tuple) else effect(instruction.argument)


EFFECTS: Final[dict[str, Effect]] = {
    # Nothing on the stack.
    "LABEL": (0, 0),
    "NOP": (0, 0),
    "CACHE": (0, 0),
    "RESUME": (0, 0),
    "PRECALL": (0, 0),
    "KW_NAMES": (0, 0),
    "MAKE_CELL": (0, 0),
    "COPY_FREE_VARS": (0, 0),
    "SETUP_ANNOTATIONS": (0, 0),
    "JUMP": (0, 0),
    "JUMP_NO_INTERRUPT": (0, 0),
    # The stack itself.
    "POP_TOP": (1, 0),
    "PUSH_NULL": (0, 1),
    "COPY": lambda depth: (depth, depth + 1),
    "SWAP": lambda depth: (depth, depth),
    # Variables.
    "LOAD_CONST": (0, 1),
    "LOAD_FAST": (0, 1),
    "LOAD_FAST_CHECK": (0, 1),
    "LOAD_FAST_AND_CLEAR": (0, 1),
    "LOAD_FAST_LOAD_FAST": (0, 2),
    "STORE_FAST": (1, 0),
    "STORE_FAST_LOAD_FAST": (1, 1),
    "STORE_FAST_STORE_FAST": (2, 0),
    "DELETE_FAST": (0, 0),
    "LOAD_CLOSURE": (0, 1),
    "LOAD_DEREF": (0, 1),
    "LOAD_CLASSDEREF": (0, 1),
    "LOAD_FROM_DICT_OR_DEREF": (1, 1),
    "STORE_DEREF": (1, 0),
    "DELETE_DEREF": (0, 0),
    "LOAD_GLOBAL": (0, 1),
    "LOAD_GLOBAL_NULL": (0, 2),
    "LOAD_FROM_DICT_OR_GLOBALS": (1, 1),
    "STORE_GLOBAL": (1, 0),
    "DELETE_GLOBAL": (0, 0),
    "LOAD_NAME": (0, 1),
    "LOAD_LOCALS": (0, 1),
    "STORE_NAME": (1, 0),
    "DELETE_NAME": (0, 0),
    # Attributes and items.
    "LOAD_ATTR": (1, 1),
    "LOAD_METHOD": (1, 2),
    "LOAD_SUPER_ATTR": (3, 1),
    "LOAD_SUPER_METHOD": (3, 2),
    "LOAD_ZERO_SUPER_ATTR": (3, 1),
    "LOAD_ZERO_SUPER_METHOD": (3, 2),
    "STORE_ATTR": (2, 0),
    "DELETE_ATTR": (1, 0),
    "BINARY_SUBSCR": (2, 1),
    "STORE_SUBSCR": (3, 0),
    "DELETE_SUBSCR": (2, 0),
    "BINARY_SLICE": (3, 1),
    "STORE_SLICE": (4, 0),
    # Operators.
    "BINARY_OP": (2, 1),
    "COMPARE_OP": (2, 1),
    "COMPARE_OP_TO_BOOL": (2, 1),
    "CONTAINS_OP": (2, 1),
    "IS_OP": (2, 1),
    "TO_BOOL": (1, 1),
    "UNARY_INVERT": (1, 1),
    "UNARY_NEGATIVE": (1, 1),
    "UNARY_NOT": (1, 1),
    "UNARY_POSITIVE": (1, 1),
    # Containers and strings.
    "BUILD_TUPLE": lambda count: (count, 1),
    "BUILD_LIST": lambda count: (count, 1),
    "BUILD_SET": lambda count: (count, 1),
    "BUILD_MAP": lambda count: (2 * count, 1),
    "BUILD_CONST_KEY_MAP": lambda count: (count + 1, 1),
    "BUILD_SLICE": lambda count: (count, 1),
    "BUILD_STRING": lambda count: (count, 1),
    "LIST_APPEND": lambda depth: (depth + 1, depth),
    "LIST_EXTEND": lambda depth: (depth + 1, depth),
    "LIST_TO_TUPLE": (1, 1),
    "SET_ADD": lambda depth: (depth + 1, depth),
    "SET_UPDATE": lambda depth: (depth + 1, depth),
    "MAP_ADD": lambda depth: (depth + 2, depth),
    "DICT_UPDATE": lambda depth: (depth + 1, depth),
    # It also looks for the callable below the arguments, but only to name it in a message.
    "DICT_MERGE": lambda depth: (depth + 1, depth),
    "UNPACK_SEQUENCE": lambda count: (1, count),
    "UNPACK_EX": lambda counts: (1, (counts & 0xFF) + (counts >> 8) + 1),
    "FORMAT_VALUE": lambda flags: (2 if flags & 4 else 1, 1),
    "FORMAT_SIMPLE": (1, 1),
    "FORMAT_WITH_SPEC": (2, 1),
    "CONVERT_VALUE": (1, 1),
    # Iteration and suspension.
    "GET_ITER": (1, 1),
    "FOR_ITER": (1, 2),
    "GET_YIELD_FROM_ITER": (1, 1),
    "RETURN_GENERATOR": (0, 1),
    "YIELD_VALUE": (1, 1),
    "SEND": (2, 2),
    "END_SEND": (2, 1),
    "CLEANUP_THROW": (3, 2),
    "GET_AWAITABLE": (1, 1),
    "GET_AITER": (1, 1),
    "GET_ANEXT": (1, 2),
    "END_ASYNC_FOR": (2, 0),
    "ASYNC_GEN_WRAP": (1, 1),
    # Calls: the callable, NULL or the method's object beside it, arguments.
    "CALL": lambda count: (count + 2, 1),
    "CALL_KW": lambda count: (count + 3, 1),
    "CALL_FUNCTION_EX": lambda flags: (3 + (flags & 1), 1),
    "CALL_INTRINSIC_1": (1, 1),
    "CALL_INTRINSIC_2": (2, 1),
    "MAKE_FUNCTION": lambda flags: (1 + flags.bit_count(), 1),
    "SET_FUNCTION_ATTRIBUTE": (2, 1),
    "LOAD_BUILD_CLASS": (0, 1),
    "RETURN_VALUE": (1, 0),
    "RETURN_CONST": (0, 0),
    "INTERPRETER_EXIT": (1, 0),
    "EXIT_INIT_CHECK": (1, 0),
    "PRINT_EXPR": (1, 0),
    # Jumps.
    "POP_JUMP_IF_TRUE": (1, 0),
    "POP_JUMP_IF_FALSE": (1, 0),
    "POP_JUMP_IF_NONE": (1, 0),
    "POP_JUMP_IF_NOT_NONE": (1, 0),
    "JUMP_IF_TRUE_OR_POP": (1, 0),
    "JUMP_IF_FALSE_OR_POP": (1, 0),
    # Imports and `match`.
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (1, 2),
    "IMPORT_STAR": (1, 0),
    "GET_LEN": (1, 2),
    "MATCH_MAPPING": (1, 2),
    "MATCH_SEQUENCE": (1, 2),
    "MATCH_KEYS": (2, 3),
    "MATCH_CLASS": (3, 1),
    # Exceptions and `with`.
    "LOAD_ASSERTION_ERROR": (0, 1),
    "RAISE_VARARGS": lambda count: (count, 0),
    "RERAISE": lambda depth: (depth + 1, depth),
    "PREP_RERAISE_STAR": (2, 1),
    "PUSH_EXC_INFO": (1, 2),
    "POP_EXCEPT": (1, 0),
    "CHECK_EXC_MATCH": (2, 2),
    "CHECK_EG_MATCH": (2, 2),
    "BEFORE_WITH": (1, 2),
    "BEFORE_ASYNC_WITH": (1, 2),
    "WITH_EXCEPT_START": (4, 5),
}
"""Values taken and left by each instruction of any version, the same in all that have it; for some
a function of the operand. What differs between versions stands in their records."""

WHEN_JUMPING: Final[dict[str, Effect]] = {
    **VERSION.effects_when_jumping,
    "JUMP_IF_TRUE_OR_POP": (1, 1),
    "JUMP_IF_FALSE_OR_POP": (1, 1),
}
"""The instructions that leave another number when they jump to their target."""

MOVABLE: Final = frozenset(
    """
    BEFORE_WITH BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP
    BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL CALL_FUNCTION_EX CALL_INTRINSIC_1
    CALL_INTRINSIC_2 CALL_KW CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP COMPARE_OP_TO_BOOL
    CONTAINS_OP CONVERT_VALUE DELETE_ATTR DELETE_GLOBAL DELETE_SUBSCR DICT_MERGE DICT_UPDATE
    FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_ITER GET_LEN GET_YIELD_FROM_ITER
    IMPORT_FROM IMPORT_NAME IS_OP JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_APPEND LIST_EXTEND
    LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_ATTR LOAD_BUILD_CLASS LOAD_CONST LOAD_GLOBAL
    LOAD_GLOBAL_NULL LOAD_METHOD LOAD_SUPER_ATTR LOAD_SUPER_METHOD LOAD_ZERO_SUPER_ATTR
    LOAD_ZERO_SUPER_METHOD MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING
    MATCH_SEQUENCE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE
    PREP_RERAISE_STAR RAISE_VARARGS RETURN_VALUE SET_ADD SET_UPDATE
    STORE_ATTR STORE_GLOBAL STORE_SLICE STORE_SUBSCR TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT
    UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START
    """.split()  # noqa: SIM905 (a list would fill a page)
)
"""The instructions that touch nothing of their frame but objects on its stack, so that another
function of the same module may execute them in its place."""
