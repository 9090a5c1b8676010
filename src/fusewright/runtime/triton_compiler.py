"""Compiles Triton source to machine code for a named GPU, which need not be in this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel


def load_kernel(source: str, folder: Path) -> Any:
    """The function `kernel` of a source, from a file in `folder`: Triton reads its text again.

    The file is named by the source's hash and written whole, so processes may share the folder.
    """
    name = f"kernel_{hashlib.blake2b(source.encode(), digest_size=12).hexdigest()}"
    path = folder / f"{name}.py"
    if not path.exists():
        unfinished = folder / f"{name}.{os.getpid()}"
        unfinished.write_text(source)
        unfinished.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def compile_kernel(
    source: str,
    signature: Mapping[str, str],
    blocks: Mapping[str, int],
    folder: Path,
    *,
    architecture: int,
    warps: int,
    debug: bool = False,
) -> CompiledKernel:
    """Compile for CUDA compute capability `architecture` (90: H100 and H200).

    signature: types of the arguments, block sizes as `constexpr`. debug: keep assertions.
    """
    function = load_kernel(source, folder)
    constants = {(function.arg_names.index(name),): size for name, size in blocks.items()}
    return triton.compile(
        ASTSource(fn=function, signature=dict(signature), constexprs=constants),
        target=GPUTarget("cuda", architecture, 32),
        # Integers wrap around by design: only our own assertions are wanted. Products are rounded
        # before they are added to, as eager's are: what is computed again has to be one number.
        options={
            "num_warps": warps,
            "debug": debug,
            "sanitize_overflow": False,
            "enable_fp_fusion": False,
        },
    )
