"""Triton source for fused groups, as one would write it by hand."""

from fusewright.kernels.triton.emit import TritonKernel, write
from fusewright.kernels.triton.tiling import Tiling, tile

__all__ = ["Tiling", "TritonKernel", "tile", "write"]
