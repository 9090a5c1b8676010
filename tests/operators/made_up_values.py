"""Whether eager's kernels stay within their memory when they are asked with made-up values.

    python -m tests.operators.made_up_values [--samples N] [--part K/N] [--ignore-table] [NAME ...]

Fakes ask eager's kernels for the CPU whether these refuse a call (`fusewright.fake.refusals`), on
tensors of zeros or of ones. A kernel that trusts integers goes where they lead. Here each ATen
operator that torch's samples call, forward and in gradients, is asked so with the samples' sizes,
with all that are above 8, 2 or 1 cut down to it, and with other types, in processes in which memory
of tensors lies between pages that may not be touched (`guarded_memory.c`): before the beginning in
one, past the end in another. A process that dies is told, with the operator and its call, and
another goes on behind it.

Operators without integer tensors are left out, unless `--all`. `--ignore-table` also does what is
not done as the table of operators (`made_up`) says that a kernel trusts integers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from fusewright import torch_compat
from fusewright.containers import mapped, tensors
from fusewright.fake import FakeMode
from fusewright.fake.refusals import LARGEST_SIZE, SUBSTITUTIONS, EagerTrial, usual_number
from fusewright.fake.tensor import META
from fusewright.fake_rules.trial import result_for_zeros
from fusewright.operators import facts, trusts_integers
from tests.operators.samples import name_of

SOURCE = Path(__file__).with_name("guarded_memory.c")
SIDES = ("begin", "end")
GUARDED = "GUARDED_MEMORY"

LIMITS = ((None, None), (LARGEST_SIZE, None), (2, None), (1, None), (2, 2), (1, 1))
"""The largest size of tensors' dimensions, and the largest of other integers."""

DTYPES = (torch.float32, torch.int64)
SECONDS = 20
"""The longest that one kernel may take."""


class Calls(TorchDispatchMode):
    """Notes the calls of ATen operators that compute, on fakes of their arguments."""

    def __init__(self, fakes: FakeMode) -> None:
        super().__init__()
        self.fakes = fakes
        self.noted: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        are_plain = all(value.layout is torch.strided for value in tensors((args, kwargs)))
        if op.namespace == "aten" and are_plain and not torch_compat.is_view_operator(op):
            self.noted.append((op, mapped(self._fake, args), mapped(self._fake, kwargs)))
        return op(*args, **kwargs)

    def _fake(self, real: Tensor) -> Tensor:
        meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=META)
        return self.fakes.wrap(meta, torch.device("cpu"))


def noted_calls(info: Any, count: int) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """What the first samples of an operator call, and their gradients."""
    fakes = FakeMode()
    for dtype in (dtype for dtype in DTYPES if dtype in info.dtypes):
        needs_gradient = info.supports_autograd and dtype.is_floating_point
        torch.manual_seed(0)
        inputs = info.sample_inputs("cpu", dtype, requires_grad=needs_gradient)
        for sample in itertools.islice(inputs, count):
            calls = Calls(fakes)
            given = (sample.input, sample.args, sample.kwargs)
            try:
                with calls:
                    results = info.op(sample.input, *sample.args, **sample.kwargs)
                    outputs = [x.sum() for x in tensors(results) if x.requires_grad]
                    leaves = [x for x in tensors(given) if x.requires_grad]
                    if outputs:
                        torch.autograd.grad(outputs, leaves, allow_unused=True)
            except Exception:  # what was called before counts
                pass
            yield from calls.noted


def trials(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Sequence[Any]
) -> Iterator[tuple[EagerTrial, Any]]:
    """The trials of a call, and the types with which each is made."""
    for limit, largest in limits:

        def plain(value: Any, largest: int | None = largest) -> Any:
            number = usual_number(value)
            is_cut = largest is not None and type(number) is int
            return min(number, largest) if is_cut else number

        trial = EagerTrial(op, args, kwargs, limit, plain)
        yield from ((trial, types) for types in (None, *SUBSTITUTIONS))


def holds_integers(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a kernel may go where numbers in its tensors lead."""
    dtypes = {value.dtype for value in tensors((args, kwargs))}
    is_pointwise = torch.Tag.pointwise in op.tags
    return not (is_pointwise or all(d.is_floating_point or d.is_complex for d in dtypes))


def ask(info: Any, options: argparse.Namespace, done: set[str], note: mmap.mmap) -> None:
    """Make all trials of an operator's calls. `done`: those not to be made again; `note`: memory
    that outlives this process, in which the one stands that is being made.
    """

    def begins(op: Any, what: str) -> bool:
        text = f"{op} {what}"[:4000]
        if text in done:
            return False
        note[:4096] = text.encode().ljust(4096, b"\0")
        signal.alarm(SECONDS)
        return True

    made: set[str] = set()
    for op, args, kwargs in noted_calls(info, options.samples):
        key = repr(EagerTrial(op, args, kwargs, None).key())
        if key in made or not (options.all or holds_integers(op, args, kwargs)):
            continue
        made.add(key)
        fills, limits = (0, 1), LIMITS
        if not options.ignore_table:
            fills = facts(op).made_up
            limits = LIMITS[:1] if trusts_integers(op) else LIMITS
        for trial, types in trials(op, args, kwargs, limits):
            for fill in fills:
                if begins(op, f"filled with {fill}, {types}, {trial.plain(99)}, {trial.key()}"):
                    trial.error_for(fill, types)
        if begins(op, f"for its result, {key}"):
            result_for_zeros(op, args, kwargs)
    signal.alarm(0)


def faults(info: Any, options: argparse.Namespace) -> list[str]:
    """The trials that ended a process."""
    done: set[str] = set()
    found = []
    while True:
        note = mmap.mmap(-1, 4096)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ask(info, options, done, note)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return found
        text = note[:4096].rstrip(b"\0").decode()
        assert text and text not in done, f"{name_of(info)}: a process ended with status {status}"
        done.add(text)
        found.append(text)


def build(folder: Path) -> Path:
    """The library that guards memory, compiled."""
    library = folder / "guarded_memory.so"
    command = ("cc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl")
    subprocess.run(command, check=True)
    return library


def run_guarded(library: Path, side: str, arguments: Sequence[str]) -> list[dict[str, str]]:
    """The faults that this module finds with memory guarded on one side, each with the operator of
    the database.
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        GUARDED: side,
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # Kernels warn of too few elements, and the like.
    }
    command = [sys.executable, "-m", __spec__.name, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ignore-table", action="store_true")
    options = parser.parse_intermixed_args()
    if GUARDED not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            library = build(Path(folder))
            for side in SIDES:
                for fault in run_guarded(library, side, sys.argv[1:]):
                    print(side, fault["operator"], fault["trial"], flush=True)
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    first, step = map(int, options.part.split("/"))
    infos = [info for info in op_db if not options.names or name_of(info) in options.names]
    random.Random(0).shuffle(infos)
    for info in itertools.islice(infos, first - 1, None, step):
        for trial in faults(info, options):
            print(json.dumps({"operator": name_of(info), "trial": trial}), flush=True)


if __name__ == "__main__":
    main()
