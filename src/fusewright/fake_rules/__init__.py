"""Sizes, strides and dtypes of the results of common operators, computed without torch's meta
kernels.

Torch's own meta kernels for these are Python references that take 50 to 1000 us each and import
sympy; a rule here takes a few. A rule gets the operator's arguments and gives a `Geometry` (a tuple
of them for several results), or None when the case is unusual or wrong: then torch's meta kernel
decides, and raises torch's own error.
"""

from __future__ import annotations

from typing import Any

from fusewright.fake_rules import (
    factories,
    fourier,
    gradients,
    indexing,
    pointwise,
    products,
    reductions,
)
from fusewright.fake_rules.geometry import Geometry as Geometry
from fusewright.fake_rules.geometry import Rule
from fusewright.fake_rules.unknown import UNKNOWN_RULES as UNKNOWN_RULES
from fusewright.fake_rules.views import VIEW_RULES as VIEW_RULES
from fusewright.fake_rules.views import ViewGeometry as ViewGeometry

RULES: dict[Any, Rule] = {
    **pointwise.RULES,
    **factories.RULES,
    **reductions.RULES,
    **products.RULES,
    **fourier.RULES,
    **indexing.RULES,
    **gradients.RULES,
}
"""Rules by operator."""
