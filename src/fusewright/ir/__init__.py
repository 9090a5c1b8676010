"""Every type that passes between stages, with its text form, parser and verifier.

Read in this order: `dtype`, `index`, `value` (with its table of operations `ops`), `program`,
`group`, `kernel`, `lines`; then `text`, `parse` and `verify` (with `bounds`),
`canonical`, and `reference`, which says what programs mean by evaluating them.
"""
