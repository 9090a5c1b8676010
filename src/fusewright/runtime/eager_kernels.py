"""Kernels that cannot be compiled, or loaded on a GPU: torch's operators compute what they say.

The source of such a kernel begins with its loops as comments (`ir.text.commented_loops`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import torch

from fusewright.logs import warn

_REASONS: Final[dict[str, str]] = {}
"""By key of a kernel, why it runs eagerly."""

_TELLING: Final = threading.Lock()


def why_eager(key: str) -> str | None:
    """Why the kernel of this key runs eagerly on some GPU; None: on none so far."""
    return _REASONS.get(key)


def run_eagerly(key: str, reason: str) -> bool:
    """Remember why the kernel of this key cannot be launched. False: that was known."""
    with _TELLING:
        is_news = key not in _REASONS
        _REASONS.setdefault(key, reason)
        return is_news


def eager_kernel(
    source: str, names: Sequence[str], tensors: int, launches: Sequence[int] = ()
) -> Callable[..., None]:
    """A function of the arguments of a kernel, the first `tensors` of them tensors, that does what
    the kernel does. `names`: the names of the arguments in the source. `launches`: the elements of
    each of the launches that it does the work of, if it does that of several.
    """

    @functools.cache
    def parsed() -> Any:
        return import_module("fusewright.ir.parse").parse_commented_loops(source)

    def run(*arguments: Any) -> None:
        evaluate = import_module("fusewright.ir.reference_groups").evaluate_group
        values = dict(zip(names, arguments, strict=False))  # How many programs there are is last.
        # Nothing is recorded of it, no more than of a kernel: neither history nor versions.
        memory = {name: values[name].data for name in names[:tensors]}
        # Numbers of the CPU, which a kernel is given by value.
        devices = {tensor.device for tensor in memory.values()}
        device = next((device for device in devices if device.type != "cpu"), torch.device("cpu"))
        memory = {name: tensor.to(device) for name, tensor in memory.items()}
        sizes = {name: values[name] for name in names[tensors:]}
        if launches:
            memory.pop(names[tensors - 1])  # The table tells a GPU alone where the others lie.
            sizes = {f"s0_{number}": size for number, size in enumerate(launches)}
        own_sizes = _by_launch(sizes)
        with torch.no_grad():
            for number, own in _by_launch(memory).items():
                evaluate(parsed(), own, own_sizes.get(number, {}))

    return run


def _by_launch(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arguments under their names in the loops, by number of the launch: `in0_3` is `in0` of the
    launch 3. The number is empty for a kernel of a single launch.
    """
    launches: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        own, _, number = name.partition("_")
        launches.setdefault(number, {})[own] = value
    return launches


def warn_of_eager_kernel(name: str, place: str, reason: str) -> None:
    """Warn that a kernel, which computes what stands at `place`, runs eagerly."""
    warn(
        f"running the kernel {name} eagerly{place and f', from {place}'}\n  {reason}\n"
        "  everything else stays compiled. options={'strict': True}, or FUSEWRIGHT_STRICT=1, makes "
        "this an error where it is known when a graph is compiled"
    )
