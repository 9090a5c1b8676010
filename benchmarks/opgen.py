"""What a generated variant costs beside its kernel: an addition of 16 elements in place, against
the functional kernel and a copy.

    python -m examples.external_backend.overhead
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from examples.external_backend.build import load


def microseconds(function: Callable[[], object], calls: int = 200, rounds: int = 200) -> float:
    """The shortest of many averages, so that what else the machine does is left out."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e6


def main() -> None:
    """Print the three figures."""
    load()
    torch.ops.ember.set_fallback("quiet")
    with torch.inference_mode():  # neither side records anything
        x, y = torch.ones(16, device="ember"), torch.zeros(16, device="ember")
        add, add_ = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
        copy = torch.ops.aten.copy_.default
        result = add(x, y)
        nothing = torch.ops.aten.is_same_size.default
        call = microseconds(lambda: nothing(x, y))
        functional = microseconds(lambda: add(x, y))
        copying = microseconds(lambda: copy(x, result))
        inplace = microseconds(lambda: add_(x, y))
    print(f"functional kernel     {functional:6.2f} µs")
    print(f"copy                  {copying:6.2f} µs")
    print(f"generated in-place    {inplace:6.2f} µs")
    print(f"an operator's call    {call:6.2f} µs, which the in-place variant saves once")
    print(f"the wrapper           {inplace - (functional + copying - call):6.2f} µs")


if __name__ == "__main__":
    main()
