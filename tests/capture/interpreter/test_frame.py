"""Code objects are made ready once, and let go with their functions."""

from __future__ import annotations

import gc
import types

from fusewright.capture.interpreter.frame import Programs
from fusewright.capture.interpreter.instructions import OPCODES, unknown_opcode


def code_of(text: str) -> types.CodeType:
    (code,) = [
        each
        for each in compile(text, "<text>", "exec").co_consts
        if isinstance(each, types.CodeType)
    ]
    return code


def test_a_program_is_made_once_and_lives_as_long_as_its_code() -> None:
    programs = Programs(OPCODES, unknown_opcode)
    code = code_of("def f(x):\n    return (lambda y: x + y)(1)")
    assert programs.of(code) is programs.of(code)
    other = code_of("def f(x):\n    return x")
    program = programs.of(other)
    assert len(programs) == 2
    del code
    gc.collect()
    assert len(programs) == 1 and programs.of(other) is program


def test_equal_code_on_other_lines_is_another_program() -> None:
    programs = Programs(OPCODES, unknown_opcode)
    near, far = (code_of(f"def f(x):\n{blank}    return x") for blank in ("", "\n\n"))
    lines = [programs.of(code).instructions[-1].positions.line for code in (near, far)]
    assert lines == [2, 4]
