"""Types of the C extension; the docstrings stand in the C files."""

from typing import Any

import torch

def attach_torch(
    path: str,
    tensor_type: type,
    parameter_type: type,
    samples: tuple[tuple[torch.Tensor, int, int], ...],
    /,
) -> bool: ...

class CpuKernel:
    name: str
    tensor_count: int
    size_count: int
    def __init__(self, address: int, tensor_count: int, size_count: int, name: str) -> None: ...
    def __call__(self, *arguments: Any) -> None: ...
