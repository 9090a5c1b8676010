"""Runs modules of this package, one behind another, in one process: most of the time of the small
ones is importing torch.

    LD_PRELOAD=device.so python -m tests.gpu.pretended "[KIND] MODULE ARGUMENT …" …

A number ahead of a module's name is the kind of attention that torch chooses. Prints what each
prints, then a line `== [KIND] MODULE ARGUMENT …: STATUS`; ends with 1 if one does not end with 0.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any


def status_of(command: str) -> Any:
    """What the module's `main` returns; the exception's name if it raises."""
    words = command.split()
    os.environ["PRETENDED_ATTENTION"] = words.pop(0) if words[0].isdigit() else "0"
    sys.argv = words
    try:
        return importlib.import_module(f"{__package__}.{words[0]}").main()
    except (Exception, SystemExit) as error:
        traceback.print_exc(file=sys.stdout)
        return type(error).__name__


def main() -> int:
    failures, commands = 0, sys.argv[1:]
    for command in commands:
        status = status_of(command)
        print(f"== {command}: {status}", flush=True)
        failures += status != 0
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
