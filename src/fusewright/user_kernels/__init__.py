"""Triton kernels that programs wrote: their launches as calls in graphs."""

from fusewright.user_kernels.building import LaunchReader, NotACall, make_call
from fusewright.user_kernels.calls import (
    OperandPlace,
    UserKernelCall,
    UserKernelOnCopies,
)
from fusewright.user_kernels.on_fakes import (
    is_interpreted,
    launching_classes,
    noting,
    noting_launches,
)
from fusewright.user_kernels.writes import Helper, kernel_writes, python_function

__all__ = [
    "Helper",
    "LaunchReader",
    "NotACall",
    "OperandPlace",
    "UserKernelCall",
    "UserKernelOnCopies",
    "is_interpreted",
    "kernel_writes",
    "launching_classes",
    "make_call",
    "noting",
    "noting_launches",
    "python_function",
]
