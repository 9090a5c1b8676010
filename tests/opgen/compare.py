"""Runs small programs on a device and on the CPU, and prints what differs.

    python -m tests.opgen.compare hosted|kinds|ember

`hosted` is a device of the Python target, `kinds` one of the C++ target, whose kernels are of
different kinds; `ember` is the example's. The output is JSON: by program, what differs or null.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from examples.external_backend.build import load
from fusewright.containers import mapped
from fusewright.opgen import read_declarations
from tests.opgen import sweep
from tests.opgen.behaviours import BEHAVIOURS
from tests.opgen.fall_backs import FALL_BACKS

KERNELS = ("add.Tensor", "floor_divide.out", "atan2_")
"""One of each kind; the first and the last are structured operators, the other is not."""

OPERATORS = {
    "hosted": ("add", "floor_divide", "atan2"),
    "kinds": ("add", "floor_divide", "atan2"),
    "ember": ("add", "sub"),  # whose kernel is the computation alone
}
"""By device: operators whose variants must behave."""


def programs(device: str) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Names and functions of a device's name."""
    for operator in OPERATORS[device]:
        for name, function in BEHAVIOURS.items():
            yield f"{operator}: {name}", lambda d, f=function, o=operator: f(o, d)
    if device != "kinds":
        yield from FALL_BACKS.items()


def difference(program: Callable[[str], Any], device: str) -> str | None:
    """What a program does otherwise than on the CPU."""
    expected, actual = _outcome(program, "cpu"), _outcome(program, device)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        same = _words(expected) == _words(actual, device)
        return None if same else f"the CPU gives {expected!r}, the device {actual!r}"
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return str(error)
    return None


def _outcome(program: Callable[[str], Any], device: str) -> Any:
    """A program's result, with tensors on the CPU, or the error that it raises."""

    def to_host(tensor: torch.Tensor) -> torch.Tensor:
        assert tensor.device.type == device, f"a result is on {tensor.device}"
        return tensor.detach().cpu()

    torch.manual_seed(0)
    try:
        result = program(device)
        results = result if isinstance(result, tuple | list) else [result]
        return mapped(to_host, [tuple(r) if isinstance(r, tuple) else r for r in results])
    except Exception as error:
        return error


def _words(outcome: object, device: str = "cpu") -> tuple[type, str]:
    """An error's class and the first line of its text, the device's name aside."""
    first, _, _ = str(outcome).partition("\n")
    return type(outcome), first.replace(f"{device}FloatType", "torch.FloatTensor")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=OPERATORS)
    device = parser.parse_args(arguments).device
    operators = [read_declarations().operators[name] for name in KERNELS]
    match device:
        case "hosted":
            sweep.register(operators)
        case "kinds":
            sweep.register_compiled(operators, "kinds")
        case "ember":
            load()
            torch.ops.ember.set_fallback("quiet")
    warnings.simplefilter("ignore")
    where = "hosted" if device == "hosted" else "ember"
    found = {name: difference(program, where) for name, program in programs(device)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
