"""Programs on external devices, each in a process of its own: a process has one such device. They
are forked from one that has imported torch and its samples, which takes ten times as long as most
of the programs:

    python -W ignore -m tests.opgen.processes

reads requests from its standard input, a line of JSON each, and answers with how each one ended.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from fusewright.opgen import read_declarations

ROOT = Path(__file__).parents[2]

SECONDS = 240
"""How long a program may take."""

LOADED = ("tests.opgen.compare", "torch.testing._internal.common_methods_invocations")
"""Modules that programs find imported."""

_LAST_LINE = "the program got through\n"


def run_program(program: str) -> str:
    """What a program prints, which has to end without an error."""
    start = f"import atexit, sys\natexit.register(sys.stdout.write, {_LAST_LINE!r})\n"
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        request = {
            "program": start + textwrap.dedent(program),
            "output": str(output),
            "errors": str(errors),
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        printed, said = output.read_text(), errors.read_text()
    assert got_through(status, said), printed + said
    assert printed.endswith(_LAST_LINE)
    return printed.removesuffix(_LAST_LINE)


def got_through(status: int, errors: str) -> bool:
    """Whether a process ended well, or was aborted by torch at its very end.

    The engine's thread of a device drops a Python object (a copy of the caller's context variables)
    after it has woken who waits for backward. Where the interpreter is being torn down by then,
    CPython ends the thread, which C++ answers with an abort. Seen with torch 2.13 about once in
    twenty runs on a busy machine, with programs that compile nothing as well.
    """
    was_torn_down = errors.startswith("terminate called without an active exception")
    return status == 0 or (was_torn_down and status in (-signal.SIGABRT, 128 + signal.SIGABRT))


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that all programs are forked from."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.opgen.processes"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # which closes its input
    return server


def _next_program() -> str | None:
    """Serve requests: in each process that is forked, its program; in the server None, at the end.

    A forked process must find nothing started: no thread has run backward, or in parallel.
    """
    for name in LOADED:
        importlib.import_module(name)
    read_declarations()
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            for number, path in ((0, os.devnull), (1, request["output"]), (2, request["errors"])):
                flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
                os.dup2(os.open(path, flags, 0o600), number)
            return str(request["program"])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)
    return None


if __name__ == "__main__":
    if (program := _next_program()) is not None:
        sys.argv[1:] = []
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
