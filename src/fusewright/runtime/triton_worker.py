"""A process that compiles kernels with Triton, so that several are compiled at a time, and that a
fault of a compiler ends no program.

Reads requests, a line of JSON each. Answers a line with a letter and a count of bytes, and those:
`c`, machine code as `cubins` has it, or `e`, the text of an error.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import BinaryIO

from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.triton_compiler import compile_to_cubin

IDLE_SECONDS = 60.0
"""How long it waits for work before it ends."""


def main() -> None:
    """Compile what is asked for until nothing comes any more. The first argument is the folder for
    sources.
    """
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What compilers print is no answer.
    while select.select([0], [], [], IDLE_SECONDS)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        answer(line.decode(), folder, answers)


def answer(line: str, folder: Path, answers: BinaryIO) -> None:
    """Compile what one line asks for, and say what came of it."""
    try:
        kind, data = b"c", compile_to_cubin(CompileRequest.from_json(line), folder).to_bytes()
    except Exception as error:
        kind, data = b"e", f"{type(error).__name__}: {error}".encode()
    answers.write(b"%s %d\n" % (kind, len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    main()
