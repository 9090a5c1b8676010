"""Machine code from LLVM IR text through llvmlite: parse, verify, inline, compile, link.

Kernels of one compile go through as one module, since most of the cost of a small module is fixed.
The text arrives already vectorised, with its loops in the wanted order, so only a handful of cheap
passes run. llvmlite (50 ms) is imported when something has to be compiled.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from fusewright.errors import FusewrightError
from fusewright.ir.dtype import DType
from fusewright.ir.kernel import Kernel
from fusewright.ir.limits import HALF_TYPES
from fusewright.native import MachineCode
from fusewright.records import field, record
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.processor import llvm_binding, this_processor

PASSES: Final = "2"
"""Number of the passes and settings of `MachineCodeCompiler`: part of what decides its code."""

LINKED = threading.Lock()
"""Held while a library is linked: llvmlite's linker keeps process-wide state."""


class KernelCompilationFailed(FusewrightError):
    """LLVM refused a kernel's text: a bug of the emitter, shown with LLVM's own message."""


@record(kw_only=True)
class CpuTarget:
    """The facts that the emitter and the code generator know of a processor."""

    name: str
    """LLVM's processor name: `znver4`, `haswell`, …"""

    features: str
    """LLVM's feature string; empty where the name says all."""

    vector_bytes: int
    """Width of a vector register; 0 where kernels are to be scalar."""

    has_scalef: bool = False
    """One instruction multiplies by a power of two without overflow on the way (AVX-512)."""

    @property
    def library_types(self) -> frozenset[DType]:
        """The half types for whose products the library may find instructions: all, where it is not
        known on which processor it will run.
        """
        if not self.features:
            return HALF_TYPES
        has = set(self.features.split(","))
        return frozenset(dtype for dtype in HALF_TYPES if has & PRODUCTS_OF[dtype])

    @property
    def multiplies_pairs(self) -> bool:
        """Whether one instruction multiplies pairs of bfloat16 and adds the products up, in vectors
        of 64 bytes.
        """
        return self.vector_bytes == 64 and "+avx512bf16" in self.features.split(",")

    @property
    def has_tiles(self) -> bool:
        """Whether the library multiplies tiles of bfloat16 by one instruction, which kernels do not
        use.
        """
        return "+amx-bf16" in self.features.split(",")

    def lanes(self, element_bits: int) -> int:
        """Elements of a width in one register, at least 1."""
        return max(1, self.vector_bytes * 8 // element_bits)


PRODUCTS_OF = {
    DType.BF16: {"+avx512bf16", "+amx-bf16", "+bf16"},
    DType.F16: {"+avx512fp16", "+amx-fp16", "+fullfp16"},
}
"""LLVM's names of the features that are instructions for products of a half type."""

NAMED_TARGETS = {
    "avx2": CpuTarget(name="haswell", features="", vector_bytes=32),
    "avx512": CpuTarget(name="skylake-avx512", features="", vector_bytes=64, has_scalef=True),
    "neon": CpuTarget(name="generic", features="", vector_bytes=16),
    "scalar": CpuTarget(name="x86-64", features="", vector_bytes=0),
}


@cache
def cpu_target(name: str = "auto") -> CpuTarget:
    """The target an option names: auto (this machine), avx2, avx512, neon or scalar."""
    if name != "auto":
        return NAMED_TARGETS[name]
    processor = this_processor()
    features = processor.features
    width = 16
    if features.get("avx512f") and features.get("avx512vl") and features.get("avx512bw"):
        width = 64
    elif features.get("avx2") and features.get("fma"):
        width = 32
    return CpuTarget(
        name=processor.name,
        features=",".join(f"{'+' if has else '-'}{name}" for name, has in sorted(features.items())),
        vector_bytes=width,
        has_scalef=width == 64,
    )


@record
class KernelLibrary:
    """Machine code in this process, freed with this object: whoever keeps an address keeps it."""

    addresses: dict[str, int]
    """Entry address by kernel name."""

    _owner: Any = field(repr=False)


_OF_THREAD: Final = threading.local()
"""Passes by target: they may not be shared between threads."""


@record(frozen=False)
class MachineCodeCompiler:
    """Text to machine code for one target. Any number of threads may use one."""

    target: CpuTarget
    objects: dict[str, bytes] = field(default_factory=dict)
    """Object code by `object_key`, so that one process never compiles the same text twice."""

    def library(self, sources: Mapping[str, str]) -> KernelLibrary:
        """Compile the modules (by kernel name) together, and link them into the process."""
        return self.link(self.object_code(sources), list(sources))

    def object_code(self, sources: Mapping[str, str]) -> bytes:
        """The object file of the joined sources."""
        text = join_modules(sources)
        key = object_key(text, self.target)
        if key not in self.objects:
            module = self.optimised(text)
            self.objects[key] = self._machine().emit_object(module)
        return self.objects[key]

    def assembly(self, sources: Mapping[str, str]) -> str:
        """The assembly text of the joined sources, for tests and `explain`."""
        return str(self._machine().emit_assembly(self.optimised(join_modules(sources))))

    def optimised(self, text: str) -> Any:
        """The parsed module after the passes that pay: inlining, and clean-up of what it leaves."""
        binding = llvm_binding()
        try:
            module = binding.parse_assembly(text, binding.create_context())
            module.verify()
        except RuntimeError as error:
            raise KernelCompilationFailed(f"{error}\n{numbered(text)}") from error
        passes, builder = self._passes()
        passes.run(module, builder)
        return module

    def _passes(self) -> tuple[Any, Any]:
        """The thread's own passes for the target, and what they are run by. llvmlite never frees
        them, some 7 kB.
        """
        by_target: dict[CpuTarget, tuple[Any, Any]] = _OF_THREAD.__dict__.setdefault("passes", {})
        if self.target not in by_target:
            binding = llvm_binding()
            passes = binding.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.add_global_dead_code_eliminate_pass()
            passes.add_sroa_pass()
            options = binding.create_pipeline_tuning_options(speed_level=1)
            by_target[self.target] = passes, binding.create_pass_builder(self._machine(), options)
        return by_target[self.target]

    def link(self, object_code: bytes, names: Sequence[str]) -> KernelLibrary:
        """Load object code into the process and look up kernels: by our own loader, which takes
        what it does on the processors that it knows, or by LLVM's linker.
        """
        try:
            code = MachineCode(object_code)
        except ValueError:
            return self._link_by_llvm(object_code, names)
        return KernelLibrary({name: code.address(name) for name in names}, code)

    def _link_by_llvm(self, object_code: bytes, names: Sequence[str]) -> KernelLibrary:
        binding = llvm_binding()
        with LINKED:
            engine = binding.create_lljit_compiler(self._machine())
            builder = binding.JITLibraryBuilder().add_object_img(object_code).add_current_process()
            for name in names:
                builder.export_symbol(name)
            library = builder.link(engine, "kernels")
        return KernelLibrary({name: library[name] for name in names}, (library, engine))

    def _machine(self) -> Any:
        """A fresh code generator: cheap, and it may not be shared between threads.

        At level 1: level 2 takes a tenth longer, for kernels that are no faster in the benchmarks.
        Of x86-64 for the small code model, whose constants are operands of instructions: in LLVM's
        own for code made at run time each takes a register for its offset, and loops that compute
        exponentials were busy with moving these about.
        """
        binding = llvm_binding()
        is_small = binding.get_default_triple().startswith("x86_64")
        return binding.Target.from_default_triple().create_target_machine(
            cpu=self.target.name,
            features=self.target.features,
            opt=1,
            reloc="pic",
            codemodel="small" if is_small else "jitdefault",
        )


OBJECTS: Final = KeptFiles("objects", ".o")
"""Object code that processes keep for later ones."""


def compile_batch(sources: Mapping[str, str]) -> KernelLibrary:
    """Compile kernels, by name, in one go for this machine. What this process or an earlier one has
    compiled is read from disk.
    """
    compiler = MachineCodeCompiler(cpu_target())
    key = object_key(join_modules(sources), compiler.target)
    code = OBJECTS.read(key)
    if code is None:
        with OBJECTS.making(key):  # Of several processes, one compiles.
            code = OBJECTS.read(key)
            if code is None:
                code = compiler.object_code(sources)
                OBJECTS.write(key, code)
    return compiler.link(code, list(sources))


def object_code(kernels: Iterable[Kernel], level: str) -> bytes:
    """The object file of those of the kernels that are for the CPU, for a level of processors as
    `cpu_target` takes it; empty without any.
    """
    sources = {kernel.name: kernel.source for kernel in kernels if kernel.language == "cpu"}
    return MachineCodeCompiler(cpu_target(level)).object_code(sources) if sources else b""


def join_modules(sources: Mapping[str, str]) -> str:
    """One module of several, by kernel name.

    A source is blocks parted by blank lines; equal blocks (mathematics) are kept once, and what
    every source calls `@kernel` gets the kernel's own name.
    """
    blocks: dict[str, None] = {}
    for name, source in sources.items():
        own = source.replace("@kernel(", f"@{name}(")
        blocks.update(dict.fromkeys(own.strip().split("\n\n")))
    return "\n\n".join(blocks) + "\n"


def object_key(text: str, target: CpuTarget) -> str:
    """Hash of all that decides the object code."""
    parts = (text, target.name, target.features, this_processor().llvm, PASSES)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def numbered(text: str) -> str:
    """`text` with line numbers, as LLVM's messages count them."""
    return "\n".join(f"{number:5} {line}" for number, line in enumerate(text.split("\n"), 1))
