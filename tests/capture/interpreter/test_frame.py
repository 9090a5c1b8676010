"""Code objects are made ready once, and let go with their functions."""

from __future__ import annotations

import gc
import types

from fusewright.capture.interpreter.frame import DecodedCodes
from fusewright.capture.interpreter.instructions import OPCODES, unknown_opcode


def code_of(text: str) -> types.CodeType:
    (code,) = [
        each
        for each in compile(text, "<text>", "exec").co_consts
        if isinstance(each, types.CodeType)
    ]
    return code


def test_a_program_is_made_once_and_lives_as_long_as_its_code() -> None:
    decoded_codes = DecodedCodes(OPCODES, unknown_opcode)
    code = code_of("def f(x):\n    return (lambda y: x + y)(1)")
    assert decoded_codes.of(code) is decoded_codes.of(code)
    other = code_of("def f(x):\n    return x")
    decoded = decoded_codes.of(other)
    assert len(decoded_codes) == 2
    del code
    gc.collect()
    assert len(decoded_codes) == 1 and decoded_codes.of(other) is decoded


def test_equal_code_on_other_lines_is_another_program() -> None:
    decoded_codes = DecodedCodes(OPCODES, unknown_opcode)
    near, far = (code_of(f"def f(x):\n{blank}    return x") for blank in ("", "\n\n"))
    lines = [decoded_codes.of(code).instructions[-1].positions.line for code in (near, far)]
    assert lines == [2, 4]
