"""Compiles Triton source to machine code for a named GPU, which need not be in this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend

from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.folders import write_once
from fusewright.runtime.gpu_code import Cubin
from fusewright.runtime.multiprocessors import MOST_WARPS, WARP
from fusewright.runtime.spills import spilled_bytes

SCRATCH = ("global_scratch_size", "profile_scratch_size")
"""Memory of its own that a kernel may ask for."""


def load_kernel(source: str, folder: Path, name: str = "kernel") -> Any:
    """The function `kernel` of a source, called `name`, from a file in `folder`: Triton reads its
    text again.

    The file is named by the source's hash and written whole, so processes may share the folder.
    """
    source = source.replace("def kernel(", f"def {name}(", 1)
    digest = hashlib.blake2b(source.encode(), digest_size=12).hexdigest()
    path = write_once(folder / f"kernel_{digest}.py", source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def compile_kernel(
    source: str,
    signature: Mapping[str, str],
    blocks: Mapping[str, int],
    folder: Path,
    *,
    architecture: int,
    warps: int,
    debug: bool = False,
    name: str = "kernel",
    aligned: int = 0,
    stages: int | None = None,
) -> CompiledKernel:
    """Compile for CUDA compute capability `architecture` (90: H100 and H200).

    signature: types of the arguments, block sizes as `constexpr`. debug: keep assertions. name:
    what profilers show. aligned: among how many arguments, the first ones, all pointers are to
    multiples of 16 bytes. stages: steps of a loop whose loads are on their way at a time, if not
    as many as Triton's own default.
    """
    function = load_kernel(source, folder, name)
    constants = {(function.arg_names.index(name),): size for name, size in blocks.items()}
    pointers = [place for place, kind in enumerate(signature.values()) if kind.startswith("*")]
    attributes = {(place,): [["tt.divisibility", 16]] for place in pointers if place < aligned}
    target = GPUTarget("cuda", architecture, WARP)
    # Integers wrap around by design: only our own assertions are wanted. Products are rounded
    # before they are added to, as eager's are: what is computed again has to be one number.
    # Functions of the device library keep subnormal numbers, as those that eager calls do.
    options = {
        "num_warps": warps,
        **({} if stages is None else {"num_stages": stages}),
        "debug": debug,
        "sanitize_overflow": False,
        "enable_fp_fusion": False,
        "enable_reflect_ftz": False,
    }
    compiled = triton.compile(
        ASTSource(fn=function, signature=dict(signature), constexprs=constants, attrs=attributes),
        target=target,
        options=options,
    )
    assembly = without_packed_sums(compiled.asm["ptx"])
    if assembly != compiled.asm["ptx"]:
        backend = make_backend(target)
        metadata = compiled.metadata._asdict()
        code = backend.make_cubin(assembly, metadata, backend.parse_options(options), architecture)
        compiled.asm["ptx"], compiled.asm["cubin"] = assembly, code
    return compiled


_PACKED_SUM = re.compile(r"\badd\.[su]16x2\s+(%\w+), (%\w+), (%\w+);")


def without_packed_sums(assembly: str) -> str:
    """PTX whose sums of two 16-bit integers in one register are two sums each.

    LLVM packs what it has proved to be short, such as remainders of indices within a block. Of a
    pair plus a constant of which one half is not used, the ptxas of CUDA 12.8 and 12.9 makes a pair
    plus 0, without a warning.
    """
    return _PACKED_SUM.sub(
        "{ .reg .b16 %low, %high, %other_low, %other_high; "
        r"mov.b32 {%low, %high}, \2; mov.b32 {%other_low, %other_high}, \3; "
        "add.s16 %low, %low, %other_low; add.s16 %high, %high, %other_high; "
        r"mov.b32 \1, {%low, %high}; }",
        assembly,
    )


def compile_to_cubin(request: CompileRequest, folder: Path) -> Cubin:
    """The machine code that Triton makes for a request; `folder` is for the source. Raises whatever
    Triton raises.
    """
    compiled = compile_request(request, folder)
    metadata = compiled.metadata
    return Cubin(
        code=compiled.asm["cubin"],
        function=metadata.name,
        warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        parameters=parameter_count(compiled.asm["ptx"]),
        scratch_bytes=sum(getattr(metadata, name, 0) for name in SCRATCH),
    )


def compile_request(request: CompileRequest, folder: Path) -> CompiledKernel:
    """What Triton makes for a request, with as many warps, or with more: where threads have too few
    registers for their elements, twice as many have half of them each. The first that keeps
    nothing in memory is taken, or that which keeps least.
    """
    best: tuple[int, CompiledKernel] | None = None
    warps = request.warps
    while best is None or (best[0] and warps <= MOST_WARPS):
        compiled = compile_kernel(
            request.source,
            request.signature,
            request.blocks,
            folder,
            architecture=request.architecture,
            warps=warps,
            debug=request.debug,
            name=request.name,
            aligned=request.aligned,
            stages=request.stages,
        )
        spilled = spilled_bytes(compiled.asm["cubin"], compiled.asm["ptx"])
        if best is None or spilled < best[0]:
            best = spilled, compiled
        warps *= 2
    return best[1]


def parameter_count(assembly: str) -> int:
    """How many parameters a kernel takes, by its PTX: those that Triton adds stand last."""
    _, _, entry = assembly.partition(".entry")
    return entry.partition(")")[0].count(".param")
