"""Schedule and kernels to wrapper lines; a memory pass over them; one emitter a target."""

from fusewright.wrapper.generate import generate_lines
from fusewright.wrapper.memory import peak_bytes, plan_memory
from fusewright.wrapper.python import emit_python

__all__ = ["emit_python", "generate_lines", "peak_bytes", "plan_memory"]
