"""Builds wheels for each supported CPython that is found, with the manylinux tag that their symbols
allow:

    python -m tools.build_wheels [--into dist] [--only 3.11]

Interpreters are looked for on the path and among pyenv's. `auditwheel` checks what a wheel links
with, and renames it. The exit status is 1 if one asks for more than `PLATFORM`, or if there is no
interpreter of a version that was asked for.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.interpreters import VERSIONS, find_interpreter

ROOT: Final = Path(__file__).parents[1]

PLATFORM: Final = "manylinux_2_28"
"""The oldest platform that torch's own wheels run on."""


def build(version: str, into: Path) -> Path | None:
    """The wheel of a version, in a folder; None, with a message: there is none that can be used."""
    python = find_interpreter(version, "import pip")
    if python is None:
        print(f"CPython {version}: not found")
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", str(ROOT), "-w", folder]
        if not _run(command):
            print(f"CPython {version}: the build failed")
            return None
        (wheel,) = Path(folder).glob("*.whl")
        repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", f"{PLATFORM}_x86_64"]
        if not _run([*repair, "-w", str(into), str(wheel)], quiet=True):
            print(f"CPython {version}: it links with more than {PLATFORM} has")
            _run([sys.executable, "-m", "auditwheel", "show", str(wheel)])
            return None
    tag = f"cp{version.replace('.', '')}"
    (built,) = (path for path in into.glob("*.whl") if re.search(rf"-{tag}-{tag}-", path.name))
    print(f"{built}  {built.stat().st_size / 1e6:.1f} MB")
    return built


def _run(command: list[str], *, quiet: bool = False) -> bool:
    """Whether a command ends well; it finds what is installed beside this interpreter."""
    output = subprocess.DEVNULL if quiet else None
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    surroundings = {**os.environ, "PATH": path}
    done = subprocess.run(command, env=surroundings, check=False, stdout=output, stderr=output)
    return not done.returncode


def main() -> int:
    """Build those asked for; else all that are found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", choices=VERSIONS)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    versions = (options.only,) if options.only else VERSIONS
    wheels = [build(version, options.into) for version in versions]
    return 0 if all(wheels) else 1


if __name__ == "__main__":
    sys.exit(main())
