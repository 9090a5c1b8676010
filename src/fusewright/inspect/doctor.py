"""`fusewright doctor`: what is installed here, what works, how fast the machine is, and what to do
about the rest.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from fusewright import __version__, native
from fusewright.errors import counted
from fusewright.inspect.machine import copy_bandwidth, product_rate
from fusewright.records import record
from fusewright.runtime.folders import configured_folder
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.torch_version import refused_version, unknown_version

MARKS: Final = {"ok": "ok", "note": "--", "warning": "!!", "failure": "XX"}
"""How each kind of finding is shown."""

LITTLE_SPACE: Final = 1 << 30
"""Bytes: less room than this on the disk of the cache is told."""

OPENMP_LIBRARIES: Final = r"lib(?:gomp|iomp5|omp)[-.\w]*\.so[.\d]*"


@record(kw_only=True)
class Diagnosis:
    """One thing that was looked at."""

    kind: str
    """A key of `MARKS`: `ok`; `note`, which may be meant so; `warning`, which costs something;
    `failure`, with which programs cannot be compiled.
    """

    subject: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        advice = f"\n{'':19}{self.remedy}" if self.remedy else ""
        return f"{MARKS[self.kind]:<4}{self.subject:<15}{self.text}{advice}"


def examine(compile_target: Callable[..., Any]) -> list[Diagnosis]:
    """Everything that was looked at; `compile_target` compiles a function. What raises is a
    failure, and the rest is looked at all the same.
    """
    checks: dict[str, Callable[[], Iterator[Diagnosis]]] = {**CHECKS}
    checks["compiling"] = functools.partial(_kernel, compile_target)
    findings: list[Diagnosis] = []
    for subject, look in checks.items():
        try:
            findings += look()
        except Exception as error:
            findings.append(_raised(subject, error))
    return findings


def _raised(subject: str, error: Exception) -> Diagnosis:
    text = f"{type(error).__name__}: {error}"
    is_stale = isinstance(error, ImportError) and "_extension" in text
    remedy = "the C extension is of another version: install fusewright again" if is_stale else ""
    return Diagnosis(kind="failure", subject=subject, text=text, remedy=remedy)


def summary(findings: Sequence[Diagnosis]) -> str:
    """One sentence about all findings."""
    counts = {kind: sum(finding.kind == kind for finding in findings) for kind in MARKS}
    if counts["failure"]:
        return f"{counted(counts['failure'], 'thing')} must be mended before programs are compiled"
    if counts["warning"]:
        return f"programs are compiled; {counted(counts['warning'], 'thing')} could be better"
    return "all is well"


# Software -----------------------------------------------------------------------------------------


def _python() -> Iterator[Diagnosis]:
    version = platform.python_version()
    text = f"CPython {version}, {platform.system()} {platform.machine()}, {sys.executable}"
    is_known = (3, 11) <= sys.version_info[:2] <= (3, 13) and sys.implementation.name == "cpython"
    if is_known:
        yield Diagnosis(kind="ok", subject="Python", text=text)
    else:
        remedy = "fusewright runs on CPython 3.11 to 3.13"
        yield Diagnosis(kind="failure", subject="Python", text=text, remedy=remedy)


def _torch() -> Iterator[Diagnosis]:
    version = torch.__version__
    text = f"{version}, {torch.get_num_threads()} threads"
    refused, unknown = refused_version(version), unknown_version(version)
    kind = "failure" if refused else "warning" if unknown else "ok"
    yield Diagnosis(kind=kind, subject="torch", text=text, remedy=refused or unknown or "")


def _fusewright() -> Iterator[Diagnosis]:
    place = Path(native.__file__).parents[1]
    yield Diagnosis(kind="ok", subject="fusewright", text=f"{__version__}, {place}")


def _packages() -> Iterator[Diagnosis]:
    for package, extra, use in (
        ("llvmlite", "", "machine code for the CPU"),
        ("jinja2", "tools", "fusewright report"),
        ("rich", "tools", "the line that says what a long compile does"),
    ):
        if importlib.util.find_spec(package) is None:
            command = f"pip install 'fusewright[{extra}]'" if extra else f"pip install {package}"
            kind = "note" if extra else "failure"
            text = f"is not installed: {use}"
            yield Diagnosis(kind=kind, subject=package, text=text, remedy=command)
        else:
            text = importlib.metadata.version(package)
            yield Diagnosis(kind="ok", subject=package, text=text)


# The processor ------------------------------------------------------------------------------------


def _processor() -> Iterator[Diagnosis]:
    target = cpu_target()
    name = processor_name()
    text = f"{name} (LLVM: {target.name}), vectors of {8 * target.vector_bytes} bits"
    if target.vector_bytes >= 32 or platform.machine() not in ("x86_64", "AMD64"):
        yield Diagnosis(kind="ok", subject="processor", text=text)
    else:
        remedy = "kernels are faster with AVX2 and FMA, which a virtual machine may hide"
        yield Diagnosis(kind="warning", subject="processor", text=text, remedy=remedy)


def processor_name() -> str:
    """The name of the processor."""
    try:
        model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        model = None
    return model[1] if model else platform.processor() or platform.machine()


def _speed() -> Iterator[Diagnosis]:
    copies, products = copy_bandwidth(), product_rate()
    text = f"copies {copies / 1e9:.1f} GB/s, products {products / 1e9:.0f} GFLOP/s in float32"
    yield Diagnosis(kind="ok", subject="speed", text=text)


def _openmp() -> Iterator[Diagnosis]:
    libraries = _loaded(OPENMP_LIBRARIES)
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    text = f"{', '.join(libraries) or 'no library is loaded'}; {threads} threads on {cores} cores"
    if len(libraries) > 1:
        remedy = "two OpenMP libraries compete for cores: install packages from one source"
        yield Diagnosis(kind="warning", subject="OpenMP", text=text, remedy=remedy)
    elif threads > cores:
        remedy = f"more threads than cores make kernels slower: OMP_NUM_THREADS={cores}"
        yield Diagnosis(kind="warning", subject="OpenMP", text=text, remedy=remedy)
    else:
        yield Diagnosis(kind="ok", subject="OpenMP", text=text)


def _loaded(pattern: str) -> list[str]:
    """Shared libraries of this process whose names match."""
    try:
        text = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(rf"/({pattern})$", text, re.MULTILINE)))


def _kernel(compile_target: Callable[..., Any]) -> Iterator[Diagnosis]:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).exp()

    x = torch.linspace(-3, 3, 4096).reshape(32, 128)
    began = time.perf_counter()
    compiled = compile_target(program, options={"strict": True})
    result = compiled(x)
    seconds = time.perf_counter() - began
    torch.testing.assert_close(result, program(x))
    text = f"a kernel was compiled and agrees with eager, {seconds:.2f} s with all that it loads"
    yield Diagnosis(kind="ok", subject="compiling", text=text)


# GPUs ---------------------------------------------------------------------------------------------


def _gpu() -> Iterator[Diagnosis]:
    driver = _driver()
    if not torch.cuda.is_available():
        if driver is None:
            yield Diagnosis(
                kind="note", subject="GPU", text="there is none; kernels run on the CPU"
            )
            return
        remedy = "install torch with CUDA: https://pytorch.org/get-started/locally"
        text = f"driver {driver}, but torch {torch.__version__} finds no GPU"
        yield Diagnosis(kind="warning", subject="GPU", text=text, remedy=remedy)
        return
    for number in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(number)
        major, minor = torch.cuda.get_device_capability(number)
        copies = copy_bandwidth(f"cuda:{number}")
        text = f"{name}, sm_{major}{minor}, driver {driver}, copies {copies / 1e9:.0f} GB/s"
        yield Diagnosis(kind="ok", subject=f"GPU {number}", text=text)


def _driver() -> str | None:
    """The version of NVIDIA's driver; None where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    version = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", text)
    return version[1] if version else "unknown"


def _triton() -> Iterator[Diagnosis]:
    if importlib.util.find_spec("triton") is not None:
        yield Diagnosis(kind="ok", subject="Triton", text=importlib.metadata.version("triton"))
        return
    kind = "failure" if torch.cuda.is_available() else "note"
    text = "is not installed: code for GPUs"
    yield Diagnosis(kind=kind, subject="Triton", text=text, remedy="pip install 'fusewright[gpu]'")


# Caches -------------------------------------------------------------------------------------------


OTHER_FOLDER: Final = "give FUSEWRIGHT_CACHE_DIR a folder that can be written to"


def _cache() -> Iterator[Diagnosis]:
    folder = configured_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        text = f"{folder} cannot be made: {error.strerror}"
        yield Diagnosis(kind="failure", subject="cache", text=text, remedy=OTHER_FOLDER)
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    text = f"{folder}, {len(files):,} files, {size / 1e6:.1f} MB"
    problem = _cache_problem(folder, status)
    if problem is not None:
        kind, what, remedy = problem
        yield Diagnosis(kind=kind, subject="cache", text=f"{text}: {what}", remedy=remedy)
    else:
        yield Diagnosis(kind="ok", subject="cache", text=f"{text}, private and writable")


def _cache_problem(folder: Path, status: os.stat_result) -> tuple[str, str, str] | None:
    """The fault of the folder of generated code, if there is one, and what to do about it."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return "failure", "it cannot be written to", OTHER_FOLDER
    if status.st_uid != os.getuid():
        remedy = "it may hold code that they planted: set FUSEWRIGHT_CACHE_DIR to a folder of yours"
        return "failure", f"it belongs to user {status.st_uid}", remedy
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "failure", "others may write to it", f"chmod 700 {folder}"
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < LITTLE_SPACE:
        left = room.f_bavail * room.f_frsize / 1e6
        remedy = "make room, or set FUSEWRIGHT_CACHE_DIR to another disk"
        return "warning", f"{left:.0f} MB are left on its disk", remedy
    return None


def _environment() -> Iterator[Diagnosis]:
    own = {name: value for name, value in os.environ.items() if name.startswith("FUSEWRIGHT_")}
    for name, value in sorted(own.items()):
        yield Diagnosis(kind="note", subject="environment", text=f"{name}={value}")


CHECKS: Final[dict[str, Callable[[], Iterator[Diagnosis]]]] = {
    "fusewright": _fusewright,
    "Python": _python,
    "torch": _torch,
    "packages": _packages,
    "processor": _processor,
    "OpenMP": _openmp,
    "speed": _speed,
    "GPU": _gpu,
    "Triton": _triton,
    "cache": _cache,
    "environment": _environment,
}
"""The examinations, in order, that come before a function is compiled."""
