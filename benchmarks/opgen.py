"""What a generated variant costs beside its kernel: an addition of 16 elements in place, against
the functional kernel and a copy; the same with the wrapper that torch's own generator makes.

    python -m benchmarks.opgen

compiles both libraries where they are not there yet. torch's wrapper computes and copies; unlike
the one of `fusewright opgen`, it checks nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torchgen import gen_backend_stubs

from examples.external_backend.build import build, compile_library, load

_DESCRIPTION = """\
backend: PrivateUse1
cpp_namespace: peer
supported:
- add.Tensor
"""

_KERNEL = """\
#include "RegisterPrivateUse1.cpp"

namespace ember {
at::Tensor add_Tensor(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);
}

at::Tensor peer::PrivateUse1NativeFunctions::add(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return ember::add_Tensor(self, other, alpha);
}
"""


def build_peer() -> Path:
    """A library that registers torch's own variants of the example's addition."""
    ember = build()
    folder = ember.parent / f"peer-{ember.stem}-{torch.__version__}"
    library = folder / "libpeer.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        description, kernel = folder / "peer.yaml", folder / "kernel.cpp"
        description.write_text(_DESCRIPTION)
        kernel.write_text(_KERNEL)
        gen_backend_stubs.run(str(description), str(folder), dry_run=False)
        compile_library(library, [kernel, ember])
    return library


def microseconds(function: Callable[[], object], calls: int = 200, rounds: int = 200) -> float:
    """The shortest of many averages, so that what else the machine does is left out."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e6


def measure() -> dict[str, float]:
    """Microseconds of each call, and of what the wrapper adds to its parts."""
    add, add_ = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
    copy, nothing = torch.ops.aten.copy_.default, torch.ops.aten.is_same_size.default
    with torch.inference_mode():  # neither side records anything
        x, y = torch.ones(16, device="ember"), torch.zeros(16, device="ember")
        result = add(x, y)
        times = {
            "an operator's call": microseconds(lambda: nothing(x, y)),
            "functional kernel": microseconds(lambda: add(x, y)),
            "copy": microseconds(lambda: copy(x, result)),
            "generated in-place": microseconds(lambda: add_(x, y)),
        }
    # Functional kernel and copy are two calls, where the in-place variant is one.
    parts = times["functional kernel"] + times["copy"] - times["an operator's call"]
    return times | {"the wrapper": times["generated in-place"] - parts}


def main() -> None:
    """Print the figures side by side."""
    load()
    torch.ops.ember.set_fallback("quiet")
    ours = measure()
    torch.ops.load_library(str(build_peer()))  # takes the place of the addition and its variants
    peer = measure()
    print(f"{'µs':20}{'fusewright':>12}{'torchgen':>12}")
    for name, value in ours.items():
        print(f"{name:20}{value:12.2f}{peer[name]:12.2f}")


if __name__ == "__main__":
    main()
