"""The instructions by name, one row each, for all versions of CPython: what each does to the stack,
whether another function may execute it, whether control continues after it, and why capture refuses
it. What capture executes has a handler as well (`capture.interpreter.instructions`).

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

from enum import Enum, auto
from typing import Final

from fusewright.capture.bytecode.instruction import Instruction
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.bytecode.versions.version import Effect
from fusewright.errors import InvalidBytecode
from fusewright.records import record


class End(Enum):
    """Why control does not go on with the next instruction."""

    JUMPS = auto()
    """An unconditional jump."""

    LEAVES = auto()
    """The function returns or raises."""


@record
class Operation:
    """An instruction, by its name."""

    name: str
    effect: Effect | None
    """The numbers of values that it takes off the stack and leaves there; for some a function of
    the operand. None where only the versions' own records tell, or it is in no code object.
    """

    when_jumping: Effect | None = None
    """The effect when it jumps to its target, where that is another."""

    is_movable: bool = False
    """Whether it touches nothing of its frame but objects on the stack, so that another function of
    the same module may execute it in its place.
    """

    end: End | None = None
    refusal: str = ""
    """Why capture breaks the graph at it; empty for what it executes."""


_ASYNCHRONOUS: Final = "asynchronous functions suspend themselves for an event loop"
_STAR: Final = "`except*` tells by their tracebacks which exceptions were raised anew"
_TOP_LEVEL: Final = "no function contains it"
_INTERNAL: Final = "no code object contains it"

_ROWS: Final = (
    # Nothing on the stack.
    Operation("LABEL", (0, 0)),
    Operation("NOP", (0, 0)),
    Operation("CACHE", (0, 0)),
    Operation("RESUME", (0, 0)),
    Operation("PRECALL", (0, 0)),
    Operation("KW_NAMES", (0, 0)),
    Operation("MAKE_CELL", (0, 0)),
    Operation("COPY_FREE_VARS", (0, 0)),
    Operation("SETUP_ANNOTATIONS", (0, 0)),
    Operation("JUMP", (0, 0), end=End.JUMPS),
    Operation("JUMP_NO_INTERRUPT", (0, 0), end=End.JUMPS),
    # The stack itself.
    Operation("POP_TOP", (1, 0)),
    Operation("PUSH_NULL", (0, 1)),
    Operation("COPY", lambda depth: (depth, depth + 1)),
    Operation("SWAP", lambda depth: (depth, depth)),
    # Variables.
    Operation("LOAD_CONST", (0, 1), is_movable=True),
    Operation("LOAD_FAST", (0, 1)),
    Operation("LOAD_FAST_CHECK", (0, 1)),
    Operation("LOAD_FAST_AND_CLEAR", (0, 1)),
    Operation("LOAD_FAST_LOAD_FAST", (0, 2)),
    Operation("STORE_FAST", (1, 0)),
    Operation("STORE_FAST_LOAD_FAST", (1, 1)),
    Operation("STORE_FAST_STORE_FAST", (2, 0)),
    Operation("DELETE_FAST", (0, 0)),
    Operation("LOAD_CLOSURE", (0, 1)),
    Operation("LOAD_DEREF", (0, 1)),
    Operation("LOAD_CLASSDEREF", (0, 1)),
    Operation("LOAD_FROM_DICT_OR_DEREF", (1, 1)),
    Operation("STORE_DEREF", (1, 0)),
    Operation("DELETE_DEREF", (0, 0)),
    Operation("LOAD_GLOBAL", (0, 1), is_movable=True),
    Operation("LOAD_GLOBAL_NULL", (0, 2), is_movable=True),
    Operation("LOAD_FROM_DICT_OR_GLOBALS", (1, 1)),
    Operation("STORE_GLOBAL", (1, 0), is_movable=True),
    Operation("DELETE_GLOBAL", (0, 0), is_movable=True),
    Operation("LOAD_NAME", (0, 1)),
    Operation("LOAD_LOCALS", (0, 1)),
    Operation("STORE_NAME", (1, 0)),
    Operation("DELETE_NAME", (0, 0)),
    # Attributes and items.
    Operation("LOAD_ATTR", (1, 1), is_movable=True),
    Operation("LOAD_METHOD", (1, 2), is_movable=True),
    Operation("LOAD_SUPER_ATTR", (3, 1), is_movable=True),
    Operation("LOAD_SUPER_METHOD", (3, 2), is_movable=True),
    Operation("LOAD_ZERO_SUPER_ATTR", (3, 1), is_movable=True),
    Operation("LOAD_ZERO_SUPER_METHOD", (3, 2), is_movable=True),
    Operation("STORE_ATTR", (2, 0), is_movable=True),
    Operation("DELETE_ATTR", (1, 0), is_movable=True),
    Operation("BINARY_SUBSCR", (2, 1), is_movable=True),
    Operation("STORE_SUBSCR", (3, 0), is_movable=True),
    Operation("DELETE_SUBSCR", (2, 0), is_movable=True),
    Operation("BINARY_SLICE", (3, 1), is_movable=True),
    Operation("STORE_SLICE", (4, 0), is_movable=True),
    # Operators.
    Operation("BINARY_OP", (2, 1), is_movable=True),
    Operation("COMPARE_OP", (2, 1), is_movable=True),
    Operation("COMPARE_OP_TO_BOOL", (2, 1), is_movable=True),
    Operation("CONTAINS_OP", (2, 1), is_movable=True),
    Operation("IS_OP", (2, 1), is_movable=True),
    Operation("TO_BOOL", (1, 1), is_movable=True),
    Operation("UNARY_INVERT", (1, 1), is_movable=True),
    Operation("UNARY_NEGATIVE", (1, 1), is_movable=True),
    Operation("UNARY_NOT", (1, 1), is_movable=True),
    Operation("UNARY_POSITIVE", (1, 1), is_movable=True),
    # Containers and strings.
    Operation("BUILD_TUPLE", lambda count: (count, 1), is_movable=True),
    Operation("BUILD_LIST", lambda count: (count, 1), is_movable=True),
    Operation("BUILD_SET", lambda count: (count, 1), is_movable=True),
    Operation("BUILD_MAP", lambda count: (2 * count, 1), is_movable=True),
    Operation("BUILD_CONST_KEY_MAP", lambda count: (count + 1, 1), is_movable=True),
    Operation("BUILD_SLICE", lambda count: (count, 1), is_movable=True),
    Operation("BUILD_STRING", lambda count: (count, 1), is_movable=True),
    Operation("LIST_APPEND", lambda depth: (depth + 1, depth), is_movable=True),
    Operation("LIST_EXTEND", lambda depth: (depth + 1, depth), is_movable=True),
    Operation("LIST_TO_TUPLE", (1, 1), is_movable=True),
    Operation("SET_ADD", lambda depth: (depth + 1, depth), is_movable=True),
    Operation("SET_UPDATE", lambda depth: (depth + 1, depth), is_movable=True),
    Operation("MAP_ADD", lambda depth: (depth + 2, depth), is_movable=True),
    Operation("DICT_UPDATE", lambda depth: (depth + 1, depth), is_movable=True),
    # It also looks for the callable below the arguments, but only to name it in a message.
    Operation("DICT_MERGE", lambda depth: (depth + 1, depth), is_movable=True),
    Operation("UNPACK_SEQUENCE", lambda count: (1, count), is_movable=True),
    Operation(
        "UNPACK_EX", lambda counts: (1, (counts & 0xFF) + (counts >> 8) + 1), is_movable=True
    ),
    Operation("FORMAT_VALUE", lambda flags: (2 if flags & 4 else 1, 1), is_movable=True),
    Operation("FORMAT_SIMPLE", (1, 1), is_movable=True),
    Operation("FORMAT_WITH_SPEC", (2, 1), is_movable=True),
    Operation("CONVERT_VALUE", (1, 1), is_movable=True),
    # Iteration and suspension.
    Operation("GET_ITER", (1, 1), is_movable=True),
    Operation("FOR_ITER", (1, 2), is_movable=True),
    Operation("GET_YIELD_FROM_ITER", (1, 1), is_movable=True),
    Operation("RETURN_GENERATOR", (0, 1)),
    Operation("YIELD_VALUE", (1, 1)),
    Operation("SEND", (2, 2)),
    Operation("END_SEND", (2, 1)),
    Operation("CLEANUP_THROW", (3, 2)),
    Operation("GET_AWAITABLE", (1, 1), refusal=_ASYNCHRONOUS),
    Operation("GET_AITER", (1, 1), refusal=_ASYNCHRONOUS),
    Operation("GET_ANEXT", (1, 2), refusal=_ASYNCHRONOUS),
    Operation("END_ASYNC_FOR", (2, 0), refusal=_ASYNCHRONOUS),
    Operation("ASYNC_GEN_WRAP", (1, 1), refusal=_ASYNCHRONOUS),
    # Calls: the callable, NULL or the method's object beside it, arguments.
    Operation("CALL", lambda count: (count + 2, 1), is_movable=True),
    Operation("CALL_KW", lambda count: (count + 3, 1), is_movable=True),
    Operation("CALL_FUNCTION_EX", lambda flags: (3 + (flags & 1), 1), is_movable=True),
    Operation("CALL_INTRINSIC_1", (1, 1), is_movable=True),
    Operation(
        "CALL_INTRINSIC_2",
        (2, 1),
        is_movable=True,
        refusal="it is part of `except*` or makes type parameters",
    ),
    Operation("MAKE_FUNCTION", lambda flags: (1 + flags.bit_count(), 1)),
    Operation("SET_FUNCTION_ATTRIBUTE", (2, 1)),
    Operation("LOAD_BUILD_CLASS", (0, 1), is_movable=True),
    Operation("RETURN_VALUE", (1, 0), is_movable=True, end=End.LEAVES),
    Operation("RETURN_CONST", (0, 0), end=End.LEAVES),
    Operation("INTERPRETER_EXIT", (1, 0), refusal=_INTERNAL),
    Operation("EXIT_INIT_CHECK", (1, 0), refusal=_INTERNAL),
    Operation("PRINT_EXPR", (1, 0), refusal=_TOP_LEVEL),
    # Jumps.
    Operation("POP_JUMP_IF_TRUE", (1, 0), is_movable=True),
    Operation("POP_JUMP_IF_FALSE", (1, 0), is_movable=True),
    Operation("POP_JUMP_IF_NONE", (1, 0), is_movable=True),
    Operation("POP_JUMP_IF_NOT_NONE", (1, 0), is_movable=True),
    Operation("JUMP_IF_TRUE_OR_POP", (1, 0), when_jumping=(1, 1), is_movable=True),
    Operation("JUMP_IF_FALSE_OR_POP", (1, 0), when_jumping=(1, 1), is_movable=True),
    # Imports and `match`.
    Operation("IMPORT_NAME", (2, 1), is_movable=True),
    Operation("IMPORT_FROM", (1, 2), is_movable=True),
    Operation("IMPORT_STAR", (1, 0), refusal=_TOP_LEVEL),
    Operation("GET_LEN", (1, 2), is_movable=True),
    Operation("MATCH_MAPPING", (1, 2), is_movable=True),
    Operation("MATCH_SEQUENCE", (1, 2), is_movable=True),
    Operation("MATCH_KEYS", (2, 3), is_movable=True),
    Operation("MATCH_CLASS", (3, 1), is_movable=True),
    # Exceptions and `with`.
    Operation("LOAD_ASSERTION_ERROR", (0, 1), is_movable=True),
    Operation("RAISE_VARARGS", lambda count: (count, 0), is_movable=True, end=End.LEAVES),
    Operation("RERAISE", lambda depth: (depth + 1, depth), end=End.LEAVES),
    Operation("PREP_RERAISE_STAR", (2, 1), is_movable=True, refusal=_STAR),
    Operation("PUSH_EXC_INFO", (1, 2)),
    Operation("POP_EXCEPT", (1, 0)),
    Operation("CHECK_EXC_MATCH", (2, 2), is_movable=True),
    Operation("CHECK_EG_MATCH", (2, 2), is_movable=True, refusal=_STAR),
    Operation("BEFORE_WITH", (1, 2), is_movable=True),
    Operation("BEFORE_ASYNC_WITH", (1, 2), refusal=_ASYNCHRONOUS),
    Operation("WITH_EXCEPT_START", (4, 5), is_movable=True),
    # Operations of loops and of CPython itself.
    Operation("END_FOR", None, refusal="a loop that ends passes it over"),
    Operation("ENTER_EXECUTOR", None, refusal=_INTERNAL),
    Operation("RESERVED", None, refusal=_INTERNAL),
)

OPERATIONS: Final = {operation.name: operation for operation in _ROWS}
"""The instructions of all versions, by name."""


def consumed(instruction: Instruction) -> int:
    """The number of values of the stack that the instruction takes or looks at."""
    return _effect(instruction, jumps=False)[0]


def produced(instruction: Instruction, jumps: bool) -> int:
    """The number of values that stand in the place of the consumed ones afterwards.

    `jumps` asks for the instruction's target; it makes no difference to one without a target.
    """
    return _effect(instruction, jumps=jumps)[1]


def skipped_by_jump(instruction: Instruction) -> tuple[str, ...]:
    """The names of instructions at its target that it passes over when it jumps.

    From 3.12 on, `FOR_ITER` at the end of an iteration takes the iterator off the stack itself and
    jumps past the instructions that stand at its target for that purpose. `produced` counts as
    CPython's compiler does, as if they were executed.
    """
    return VERSION.skipped_at_loop_end if instruction.name == "FOR_ITER" else ()


def _effect(instruction: Instruction, *, jumps: bool) -> tuple[int, int]:
    """Values taken and values left. Raises `InvalidBytecode` for an unknown instruction."""
    name = instruction.name
    operation = OPERATIONS.get(name)
    if operation is None:
        raise InvalidBytecode(f"{name} is no operation of this Python version")
    effect = VERSION.effects.get(name) or operation.effect
    if jumps:
        effect = VERSION.effects_when_jumping.get(name) or operation.when_jumping or effect
    if effect is None:
        raise InvalidBytecode(f"{name} is no operation of this Python version")
    return effect if isinstance(effect, tuple) else effect(instruction.argument)
