"""What LLVM says of this machine's processor, and its own version: kept on disk, so that a process
that finds its machine code there imports no LLVM (50 ms).
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from fusewright.records import record
from fusewright.runtime.kept_files import KeptFiles

PROCESSORS: Final = KeptFiles("processors", ".json")

_DECISIVE: Final = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU implementer",
    "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
"""Lines of /proc/cpuinfo that tell one kind of processor from another, of x86-64 and of ARM."""


@record(kw_only=True)
class Processor:
    """A processor, as LLVM knows it."""

    name: str
    """`znver4`, `haswell`, …"""

    features: dict[str, bool]
    llvm: str
    """The version of LLVM that says so: `20.1.8`."""


@cache
def llvm_binding() -> ModuleType:
    """llvmlite's binding, with the code generator of this machine's processor family ready."""
    binding = import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def this_processor() -> Processor:
    """The processor of this machine, as this or an earlier process has asked LLVM."""
    key = _key()
    content = PROCESSORS.read(key) if key else None
    if content is not None:
        return Processor(**json.loads(content))
    binding = llvm_binding()
    processor = Processor(
        name=binding.get_host_cpu_name(),
        features=dict(binding.get_host_cpu_features()),
        llvm=".".join(map(str, binding.llvm_version_info)),
    )
    if key:
        facts = {name: getattr(processor, name) for name in type(processor).__annotations__}
        PROCESSORS.write(key, json.dumps(facts).encode())
    return processor


def _key() -> str:
    """Hash of all that decides the answer: the processor as the kernel tells of it, and the files
    of llvmlite; empty where they cannot be read.
    """
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
        rows = [line.partition(":") for line in first.splitlines()]
        facts = [(name.strip(), text.strip()) for name, _, text in rows]
        decisive = [fact for fact in facts if fact[0] in _DECISIVE]
        spec = find_spec("llvmlite")
        if spec is None or spec.origin is None or not decisive:
            return ""
        files = sorted(Path(spec.origin).parent.glob("binding/*llvmlite.*"))
        library = [(str(path), *_identity(path)) for path in (Path(spec.origin), *files)]
    except OSError:
        return ""
    return hashlib.sha256(repr((decisive, library)).encode()).hexdigest()


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
