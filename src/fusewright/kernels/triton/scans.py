"""Each kind of scan in Triton: the function that combines two results, and what changes nothing."""

from __future__ import annotations

from fusewright.ir.group import ScanStore
from fusewright.kernels.triton.reductions import filled, from_zero, identity_text
from fusewright.records import record


@record
class PlainScan:
    """One kind of scan."""

    identity: str
    """The neutral element, by name: zero, one, least or greatest."""

    function: str
    """The function of `triton_functions` that combines an earlier result with a later one."""


SCANS = {
    "sum": PlainScan("zero", "add"),
    "prod": PlainScan("one", "multiply"),
    "max": PlainScan("least", "later_maximum"),
    "min": PlainScan("greatest", "later_minimum"),
    "logsumexp": PlainScan("least", "logaddexp"),
}
"""Scans by kind."""


def scan_start(action: ScanStore, shape: str) -> str:
    """The values that rows carry into their first blocks."""
    dtype = action.value.dtype
    return filled(shape, identity_text(SCANS[action.kind].identity, dtype), dtype)


def scanned(action: ScanStore, block: str, dimension: int, *, from_end: bool) -> str:
    """A block scanned along its rows, or from their ends."""
    kind = action.kind
    way = ", reverse=True" if from_end else ""
    text = f"tl.associative_scan({block}, {dimension}, functions.{SCANS[kind].function}{way})"
    is_sum = kind in ("sum", "logsumexp") and action.value.dtype.is_float
    return from_zero(text) if is_sum else text


def across_block(kind: str, block: str, dimension: int) -> str:
    """The result of the scan at the end of each row of a block."""
    function = SCANS[kind].function
    return f"tl.reduce({block}, {dimension}, functions.{function}, keep_dims=True)"


def combined(kind: str, earlier: str, later: str) -> str:
    """Two results together."""
    return f"functions.{SCANS[kind].function}({earlier}, {later})"
