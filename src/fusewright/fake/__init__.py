"""Fake tensors: sizes, strides, dtype and device of a tensor without its data, cheap enough to
trace a model with.

A `FakeTensor` is a wrapper subclass that reports the real device; inside it is a meta tensor, whose
storage identity says which fakes alias. A `FakeMode` runs any ATen operator on fakes: by a rule of
our own where one is known (`fake_rules`, about 10 us an operator), else on the meta tensors by
torch's own meta kernels. Composite operators have been taken apart by the dispatcher before they
arrive here, for the real device, since that is what a fake reports.

Unlike torch's own `FakeTensorMode`, this imports neither `torch._dynamo` nor sympy on the common
path. Sizes are plain integers; in a mode with `ShapeFacts` they may be expressions over symbols.
"""

from fusewright.fake.known_values import known_value
from fusewright.fake.mode import FakeMode
from fusewright.fake.tensor import FakeTensor
from fusewright.fake.values import holds_integers

__all__ = ["FakeMode", "FakeTensor", "holds_integers", "known_value"]
