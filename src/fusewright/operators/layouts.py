"""Whether a graph's operators go by the elements of tensors alone, however these lie in memory."""

from __future__ import annotations

import operator

from torch import fx

from fusewright.torch_compat import PACKED_CONVOLUTION


def may_lie_anyhow(graph: fx.Graph) -> bool:
    """Whether no node looks at the memory behind its arguments: operators of ATen go by elements,
    but for those that show memory.
    """
    targets = {node.target for node in graph.nodes if node.op == "call_function"}
    names = map(str, targets - {operator.getitem, PACKED_CONVOLUTION})
    return all(name.startswith("aten.") and "as_strided" not in name for name in names)
