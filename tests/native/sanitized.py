"""Threads that compile and call, with a sanitised build of the C extension:

    python -m tests.native.sanitized [--seconds 600] [--threads 16]

The extension is built once more, with AddressSanitizer and UndefinedBehaviorSanitizer, into a
folder of its own. Python allocates with `malloc` there, so that objects of Python that are used
after they died are seen as well. A report ends the program, and with it this one, with a status
other than 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"


def build(folder: Path) -> None:
    """The package with a sanitised extension."""
    shutil.copytree(
        ROOT / "src" / "fusewright", folder / "fusewright",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )  # fmt: skip
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--force"]
    places = ["--build-lib", str(folder), "--build-temp", str(folder / "objects")]
    surroundings = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    subprocess.run([*command, *places], cwd=ROOT, env=surroundings, check=True)


def runtime(name: str) -> str:
    """The library of a sanitiser, which has to be loaded before Python's own."""
    command = [os.environ.get("CC", "gcc"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a process that uses the sanitised build in a folder."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # What Python leaves behind at its end is no leak of ours; guard pages handle faults.
        "ASAN_OPTIONS": "detect_leaks=0:allow_user_segv_handler=1:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "FUSEWRIGHT_CACHE_DIR": str(folder / "cache"),
    }


def main() -> int:
    """Build, run the threads, and give their status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", default="600")
    parser.add_argument("--threads", default="16")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        arguments = ["--seconds", options.seconds, "--threads", options.threads]
        command = [sys.executable, "-P", "-m", "tests.native.threads", *arguments]
        return subprocess.run(command, cwd=folder, env=surroundings(folder), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
