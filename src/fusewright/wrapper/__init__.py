"""Schedule and kernels to wrapper lines; a memory pass over them; one emitter a target."""
