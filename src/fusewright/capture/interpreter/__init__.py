"""The symbolic interpreter: `machine` runs frames, `frame` is one, `opcodes` each instruction."""
