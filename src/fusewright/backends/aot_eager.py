"""Backends that run the traced graphs with eager operators: they tell faults of tracing, of the
partition and of decompositions from those of later stages.
"""

from __future__ import annotations

from fusewright.aot import (
    COMPILER_DECOMPOSITIONS,
    aot_autograd,
    default_partition,
    min_cut_rematerialization_partition,
)
from fusewright.backends.eager import eager

aot_eager = aot_autograd(fw_compiler=eager, partition_fn=min_cut_rematerialization_partition)
"""Traced, no operator decomposed."""

aot_eager_default_partitioner = aot_autograd(fw_compiler=eager, partition_fn=default_partition)
"""Traced; nothing is computed again for backward."""

aot_eager_decomp_partition = aot_autograd(
    fw_compiler=eager,
    partition_fn=min_cut_rematerialization_partition,
    decompositions=COMPILER_DECOMPOSITIONS,
)
"""Decomposed and cut in two as for compiled kernels."""
