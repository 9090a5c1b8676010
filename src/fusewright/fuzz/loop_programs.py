"""Random programs of the loop IR as files of the fuzzer: what `loops` generates and checks, in the
form of the other kinds.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from fusewright.fuzz import loops
from fusewright.fuzz.program import ENDING, RandomProgram
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_program

_FILE: Final = '''\
from fusewright.fuzz import show
from fusewright.fuzz.loops import check
from fusewright.ir.parse import parse_program

TEXT = """
{text}
"""


def verify():
    return check(parse_program(TEXT), {seed})
'''


def generate(seed: int) -> RandomProgram:
    """The loop program of a seed."""
    return _as_file(seed, loops.generate(Random(f"loops {seed}")))


def smaller(program: RandomProgram) -> RandomProgram:
    """The least of a program that still differs from its reference."""
    text: Any = program.load()["TEXT"]
    return _as_file(program.seed, loops.shrunk(parse_program(text), program.seed))


def _as_file(seed: int, program: Any) -> RandomProgram:
    text = print_program(program).strip()
    return RandomProgram("loops", seed, _FILE.format(text=text, seed=seed) + ENDING)
