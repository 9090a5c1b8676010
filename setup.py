"""Builds the C extension; everything else stands in pyproject.toml."""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = "src/fusewright/native"
SOURCES = (
    "module",
    "torch_library",
    "torch_state",
    "tensor_access",
    "profiling",
    "cpu_kernel",
    "random_draws",
    "standalone/checksum",
    "standalone/object_code",
    "machine_code",
    "plan_numbers",
    "plan_operations",
    "plan_results",
    "call_plan",
    "shared_memory",
    "history",
    "training_call",
    "gpu_kernel",
    "guarded_call",
    "guard_sizes",
    "guard_steps",
    "guard_tests",
    "guard_journal",
    "guard_program",
    "interpreter_frame",
    "continuation",
    "call_trial",
    "entry",
    "owners",
    "code_records",
    "entry_search",
    "written_calls",
    "frame_compiler",
    "frame_hook",
    "compiled_call",
)
HEADERS = (
    *(
        name
        for name in SOURCES
        if name not in ("module", "guard_steps", "guard_tests", "plan_operations")
    ),
    "pending_call",
    "plan_slots",
    "standalone/dynamic_linking",
    "standalone/kernel_launch",
)

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(f"fusewright needs Python 3.11, 3.12 or 3.13; this is {sys.version.split()[0]}")

# These come behind CFLAGS, and the last level counts.
LEVEL = () if "-O" in os.environ.get("CFLAGS", "") else ("-O2",)


class BuildExtension(build_ext):
    """The usual build, with one plain sentence when there is no compiler."""

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except CompileError as error:
            raise CompileError(
                f"fusewright's C extension was not built ({error}): installing needs a C compiler, "
                "such as the `gcc` package of a Linux distribution, and Python's headers"
            ) from error


setup(
    ext_modules=[
        Extension(
            "fusewright.native._extension",
            sources=[f"{NATIVE}/{name}.c" for name in SOURCES],
            depends=[f"{NATIVE}/{name}.h" for name in HEADERS],
            extra_compile_args=[*LEVEL, "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
