"""Every type that passes between stages, with its text form, parser and verifier.

Read in this order: `dtype`, `index`, `value` (with its table of operations `ops`), `program`,
`group`, `kernel`, `lines`; then `text`, `parse` and `verify`.
"""
