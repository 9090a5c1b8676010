"""The record of the running CPython version, out of one file for each version supported."""

from __future__ import annotations

import sys

from fusewright.capture.bytecode.versions import cpython311, cpython312, cpython313
from fusewright.capture.bytecode.versions.version import (
    BINARY_OPERATORS,
    Encoding,
    Operand,
    OperationTable,
    Version,
    build_operation_table,
)

__all__ = ["BINARY_OPERATORS", "OPERATIONS", "VERSION", "Encoding", "Operand", "Version"]

VERSIONS: dict[tuple[int, int], Version] = {
    (3, 11): cpython311.VERSION,
    (3, 12): cpython312.VERSION,
    (3, 13): cpython313.VERSION,
}


def _running_version() -> Version:
    running = sys.version_info[:2]
    if running not in VERSIONS or sys.implementation.name != "cpython":
        raise ImportError(
            f"fusewright rewrites the bytecode of CPython 3.11 to 3.13; this is "
            f"{sys.implementation.name} {running[0]}.{running[1]}"
        )
    return VERSIONS[running]


VERSION: Version = _running_version()
OPERATIONS: OperationTable = build_operation_table(VERSION)
