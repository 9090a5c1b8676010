"""Formulas of operators, and of functions of torch, in simpler ones: one table, which the modules
here fill as they are imported.

    @formula(aten.heaviside.default)
    def heaviside(x: Tensor, values: Tensor) -> Tensor:
        step = aten._to_copy.default(aten.gt.Scalar(x, 0), dtype=x.dtype)
        return aten.where.self(aten.eq.Scalar(x, 0), values, step)

A formula is used in all graphs that are compiled, unless it names another `When`. Operators that
lowering has rules for (pointwise operators, reductions, softmax, normalisations, indexing, views)
and those that are better as library calls (products, convolution, attention, pooling) have none.
Half types are computed in float32 and rounded once, as eager operators do.
"""

from __future__ import annotations

from fusewright.formulas import (  # noqa: F401
    draws,
    in_backward,
    indexing,
    loss_scaling,
    losses,
    normalization,
    pointwise,
    reductions,
    running_products,
    varying_sizes,
    views,
)
from fusewright.formulas.foreach import apply_to_each, is_foreach
from fusewright.formulas.table import Formula, When, formula, formula_of_call, formulas
from fusewright.formulas.varying_numbers import written_out

__all__ = [
    "Formula",
    "When",
    "apply_to_each",
    "formula",
    "formula_of_call",
    "formulas",
    "is_foreach",
    "written_out",
]
