"""A device with a kernel of one kind for every operator, on the C++ target: it has the memory of
the example's, and its kernels hand each call on to the CPU.

    python -m tests.opgen.everything [--kind functional|in-place|out]

compiles it, with warnings as errors. That takes some ten minutes of one core; what was compiled is
kept, so that it can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.external_backend.build import SOURCES, build_library
from fusewright.opgen import PER_FILE, generate, read_declarations
from fusewright.opgen.cpp_types import parameter_list, result_type
from fusewright.opgen.declarations import Kind, Operator
from tests.opgen.host_device import SUPPORTED

_UNIT = """\
#include "EmberKernels.h"
#include "OpgenSupport.h"

{includes}

namespace ember {{

{kernels}
}}  // namespace ember
"""


def operators_of(kind: Kind) -> list[Operator]:
    """The operators of one kind from which others can be made."""
    return [
        operator
        for group in read_declarations().groups
        if (operator := group.members.get(kind)) is not None
        and len(group.members) > 1
        and operator.name not in SUPPORTED
        and not operator.composite
        and not operator.is_view
        and "inplace_view" not in operator.tags
        # The way to the CPU is made of these.
        and operator.base not in ("clone", "copy", "set")
        and not operator.base.startswith("_copy_from")
        and not operator.writes_to_const
        # The rest moves tensors, or makes them of nothing.
        and not any(p.name == "device" for member in group for p in member.parameters)
    ]


def description(backend: str, operators: Sequence[Operator]) -> str:
    """The YAML of a backend with these kernels."""
    lines = "".join(f"- {name}\n" for name in (*SUPPORTED, *(o.name for o in operators)))
    return f"backend: {backend}\ncpp_namespace: {backend}\nsupported:\n{lines}"


def _kernel(operator: Operator) -> str:
    arguments = ", ".join(parameter.name for parameter in operator.parameters)
    return (
        f"{result_type(operator)} {operator.symbol}({parameter_list(operator)}) {{\n"
        f"  return opgen::OnCpu<at::_ops::{operator.symbol}>::call({arguments});\n"
        "}\n"
    )


def _kernels(operators: Sequence[Operator]) -> str:
    return _UNIT.format(
        includes="\n".join(sorted({f"#include <ATen/ops/{o.root}_ops.h>" for o in operators})),
        kernels="\n".join(map(_kernel, operators)),
    )


def build(operators: Sequence[Operator], name: str) -> Path:
    """The library of a device with these kernels, compiled where it is not there yet."""
    files = generate(description("ember", operators), targets=["cpp"])
    folder = Path(tempfile.gettempdir()) / f"everything-{name}-{os.getuid()}"
    device = SOURCES / "device.cpp"
    if len(operators) <= PER_FILE:  # in one unit: most of the time goes to torch's headers
        files["RegisterEmber.cpp"] += _kernels(operators) + device.read_text()
        return build_library(files, [], folder)
    for start in range(0, len(operators), PER_FILE):
        part = operators[start : start + PER_FILE]
        files[f"Kernels_{start // PER_FILE}.cpp"] = _kernels(part)
    return build_library(files, [device], folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="functional")
    kind = Kind(parser.parse_args().kind)
    print(build(operators_of(kind), kind.value))
