"""The symbolic interpreter: `machine` runs frames, `frame` one of them, `opcodes` each instruction."""
