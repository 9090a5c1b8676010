"""ATen graph to Program: one registered rule an operator; what has no rule stays a call of the
eager operator.
"""

from fusewright.lower.arguments import calling_order
from fusewright.lower.lowering import lower

__all__ = ["calling_order", "lower"]
