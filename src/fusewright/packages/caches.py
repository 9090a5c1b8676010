"""`fusewright cache`: plans, machine code, and which kernels won, that processes keep on disk for
later ones: counted, removed, and carried to other machines as one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fusewright import graph_key, kept_plans
from fusewright.errors import PackageRefused, counted
from fusewright.packages.container import read_package, write_package
from fusewright.runtime import choices, cubins, llvm_engine, processor
from fusewright.runtime.folders import generated_folder
from fusewright.runtime.kept_files import ROOM, KeptFiles
from fusewright.runtime.loader import MODULE_ROOM, generated_modules

KINDS: Final[dict[str, tuple[KeptFiles, str]]] = {
    "plan": (kept_plans.PLANS, "plans of graphs"),
    "key": (kept_plans.KEYS, "keys of plans, by place in the program"),
    "source": (graph_key.SOURCES, "digests of fusewright's own files"),
    "cpu": (llvm_engine.OBJECTS, "machine code of CPU kernels"),
    "gpu": (cubins.FILES, "machine code of GPU kernels"),
    "processor": (processor.PROCESSORS, "what LLVM says of processors"),
    "choice": (choices.FILES, "kernels that were found to be fastest"),
}

MISSES: Final = 5
"""How many plans `info` says why they were made."""

WHAT: Final = "fusewright's cache"
"""The kind of file that `export_to` writes, as it stands in its manifest."""


def info() -> str:
    """Where they are, how many, and their bytes, as text."""
    rows = [f"{generated_folder()}"]
    for files, what in KINDS.values():
        rows.append(_row(what, *files.size(), ROOM))
    modules = [size for _, size, _ in generated_modules()]
    rows.append(_row("generated modules", len(modules), sum(modules), MODULE_ROOM))
    misses = kept_plans.last_misses(MISSES)
    rows += ["  plans that were made last, and why:"] if misses else []
    rows += [f"    {place or 'a graph'}\n      {outcome}" for place, outcome in misses]
    return "\n".join(rows) + "\n"


def _row(what: str, count: int, size: int, room: int) -> str:
    return (
        f"  {what}: {counted(count, 'file')}, {size / 2**20:.1f} MiB of at most {room // 2**20:,}"
    )


def clear() -> None:
    """Remove all of them, and the generated modules."""
    for files, _ in KINDS.values():
        files.clear()
    for _, _, path in generated_modules():
        path.unlink(missing_ok=True)


def export_to(path: Path) -> int:
    """Write all machine code to one file; how many there are. OSError: it cannot be written."""
    sections = []
    for kind, (files, _) in KINDS.items():
        for key in files.keys_on_disk():
            content = files.read(key, is_use=False)
            if content is not None:
                sections.append((f"{kind}/{key}", content))
    write_package(path, {"what": WHAT}, sections, b"")
    return len(sections)


def import_from(path: Path) -> int:
    """Keep what is in a file of `export_to`; how many there are. PackageRefused: it is damaged, or
    another file. Its machine code is run where kernels ask for it: it has to come from somebody
    whose programs you run.
    """
    file = read_package(path, b"")
    if file.manifest.get("what") != WHAT:
        raise PackageRefused(str(path), "it is a package, and no exported cache")
    for name in file.places:
        kind, _, key = name.partition("/")
        if kind not in KINDS or not key.isalnum():
            raise PackageRefused(str(path), f"it holds {name!r}, which no cache does")
        KINDS[kind][0].write(key, bytes(file.section(name)))
    return len(file.places)
