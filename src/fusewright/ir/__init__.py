"""Every type that passes between stages, with its text form, parser and verifier.

Read in this order: `dtype`, `index` (with `compounds`), `value` (with its table of operations
`ops`), `program`, `group`, `kernel`, `lines`; then `text`, `parse` and `verify` (with `bounds`),
`canonical`, and `reference`, which says what programs mean by evaluating them. `relations` and
`proof` are what is said and proved of indices.
"""

from fusewright.ir import compounds as _compounds  # noqa: F401  (indices are simplified by it)
