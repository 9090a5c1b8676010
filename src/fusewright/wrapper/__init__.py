"""Schedule and kernels to wrapper lines; a memory pass over them; one emitter a target. That of
C++, `cpp`, is imported where it is asked for.
"""

from fusewright.wrapper.batches import batch_launches
from fusewright.wrapper.blocks import Flow, alone, with_blocks
from fusewright.wrapper.fx_graph import emit_fx, fused_examples
from fusewright.wrapper.generate import generate_lines
from fusewright.wrapper.instrument import instrument
from fusewright.wrapper.memory import peak_bytes, plan_memory
from fusewright.wrapper.native import pack_native
from fusewright.wrapper.python import PythonModule, emit_module, emit_python

__all__ = [
    "Flow",
    "PythonModule",
    "alone",
    "batch_launches",
    "emit_fx",
    "emit_module",
    "emit_python",
    "fused_examples",
    "generate_lines",
    "instrument",
    "pack_native",
    "peak_bytes",
    "plan_memory",
    "with_blocks",
]
