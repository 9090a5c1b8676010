"""Generated wrappers around every kernel of one kind against the CPU on torch's own samples.

    python -m tests.opgen.sweep [NAME …] [--kind functional|in-place|out] [--target cpp]

The device's memory is the host's, and its kernels are the CPU's own, so that what differs is the
wrappers. For C++ they are compiled first, which takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import types
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from examples.external_backend.build import load
from fusewright.opgen import generate
from fusewright.opgen.conformance import differences
from fusewright.opgen.declarations import Kind, Operator
from tests.opgen import everything, host_device

KNOWN = {
    "addbmm": "on the CPU, resizes `self` in place and its out without a warning",
    "unbind_copy": "on the CPU, the kernel itself refuses outs that want a gradient",
    "mode": "torch's kernel for every device takes some alone",
    "empty": "what it holds is anything",
    "nn.functional.avg_pool3d": "on the CPU, writes to the wrong places of an out with gaps",
    "nansum": "on the CPU, sums in the dtype of its out alone",
    "nanmean": "nansum",
    "native_batch_norm": "on the CPU, saves nothing when it does not train",
    "nn.functional.logsigmoid": "on the CPU, resizes its buffer without a warning",
    "narrow_copy": "on the CPU, resizes its out without a warning, and where it has gaps",
    "normal": "on the CPU, draws in another order where there are gaps",
}
"""Operators whose variants differ among themselves on the CPU, and how."""


def register(operators: Sequence[Operator]) -> types.ModuleType:
    """A device with kernels for these operators on the Python target: its generated module."""
    text = everything.description("hosted", operators)
    source = generate(text, targets=["python"])["hosted_operators.py"]
    module = types.ModuleType("hosted_operators")
    exec(compile(source, "hosted_operators.py", "exec"), module.__dict__)
    kernels: Any = types.SimpleNamespace(**vars(host_device.KERNELS))
    for operator in operators:
        base, _, overload = operator.name.partition(".")
        entry = getattr(getattr(torch.ops.aten, base), overload or "default")
        is_out = operator.kind is Kind.OUT
        make = host_device.out_through_host if is_out else host_device.through_host
        setattr(kernels, operator.symbol, make(entry))
    host_device.load()
    module.fall_back.mode = "quiet"
    module.register(kernels)
    return module


def register_compiled(operators: Sequence[Operator], name: str) -> None:
    """The same on the C++ target, compiled where it is not there yet."""
    load(everything.build(operators, name))
    torch.ops.ember.set_fallback("quiet")


def main() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", default="functional")
    parser.add_argument("--target", default="python", choices=("python", "cpp"))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--part", default="0/1", help="every n-th operator, from the k-th: k/n")
    options = parser.parse_args()
    device = "hosted" if options.target == "python" else "ember"
    operators = everything.operators_of(Kind(options.kind))
    if device == "hosted":
        register(operators)
    else:
        register_compiled(operators, options.kind)
    first, step = map(int, options.part.split("/"))
    infos = [info for info in op_db if not options.names or info.name in options.names][first::step]
    totals: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for info in infos:
        if info.name in KNOWN or (info.inplace_variant is None and not info.supports_out):
            continue
        if torch.float32 not in info.supported_dtypes("cpu"):
            continue
        found = differences(info, device, torch.float32, samples=options.samples)
        totals["differ" if found else "agree"] += 1
        for line in found:
            print(line[:400], flush=True)
    print(dict(totals))
    sys.exit(totals["differ"] > 0)


if __name__ == "__main__":
    main()
