"""Every option of a compile, in one frozen object: few knobs, each documented."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from fusewright.errors import did_you_mean

FRONT_END_OPTIONS: Final = frozenset(
    {
        "strict",
        "recompile_limit",
        "accumulated_recompile_limit",
        "capture_data_dependent_sizes",
        "capture_scalar_outputs",
        "capture_dynamic_output_shape_ops",
        "eager_where_faster",
    }
)
"""Options that belong to capture, whatever the backend."""

TARGETS: Final = ("native", "python")

DDP_SPLITS: Final = ("backward", "graph", "none")

KERNEL_TARGETS: Final = ("auto", "avx2", "avx512", "neon", "scalar")

ALLOWED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "expression_limit": ("at least 1", lambda limit: limit >= 1),
    "kernel_target": (f"one of {', '.join(KERNEL_TARGETS)}", lambda name: name in KERNEL_TARGETS),
    "target": (f"one of {', '.join(TARGETS)}", lambda name: name in TARGETS),
    "memory_budget": ("between 0 and 1", lambda budget: 0 <= budget <= 1),
    "split_for_ddp": (f"one of {', '.join(DDP_SPLITS)}", lambda name: name in DDP_SPLITS),
    "recompile_limit": ("at least 1", lambda limit: limit >= 1),
    "accumulated_recompile_limit": ("at least 1", lambda limit: limit >= 1),
}
"""Values that an option may have, in words and as a question."""


class OfData(NamedTuple):
    """What a graph keeps that depends on the values of tensors."""

    integers: bool = False
    sizes: bool = False


NOTHING: Final = OfData()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user may choose about one compile; passed down explicitly, never read from ambient
    state.
    """

    strict: bool = False
    """Turn quiet fall-backs to eager into errors. Also set by `FUSEWRIGHT_STRICT=1`."""

    verify: bool = False
    """Run the IR verifier between stages. On in tests."""

    expression_limit: int = 64
    """A lazy value whose expression grows past this many operations is realised into a buffer."""

    target: str = "native"
    """What runs what surrounds the kernels: native, one C function; or python, the statements of
    the generated module. Also chosen by `FUSEWRIGHT_TARGET`.
    """

    kernel_target: str = "auto"
    """CPU features that kernels are compiled for: one of `KERNEL_TARGETS`; auto: this machine's."""

    memory_budget: float = 1.0
    """In training, the share of the bytes kept for backward that may be kept at most: below 1, as
    much is computed again as that takes; 0 keeps as little as possible.
    """

    eager_random: bool = False
    """Let dropout on a GPU draw what eager draws, by a kernel of its own whose mask is kept for
    backward: else kernels make its numbers on the way, others than eager's, and again in backward.
    On the CPU all draws are eager's.
    """

    split_for_ddp: str = "backward"
    """Which graph is cut where a bucket of gradients of `DistributedDataParallel` is full, so that
    the bucket is reduced while other gradients are computed: backward; graph, the captured one, of
    which each piece is compiled by itself; or none.
    """

    recompile_limit: int = 8
    """How often one function may be compiled for one object that it is called on, for the guards
    that fail; then other such calls run eagerly, or fail where that is an error.
    """

    accumulated_recompile_limit: int = 256
    """How often all functions that one compiled function or module runs may be compiled together,
    resumed parts included.
    """

    capture_scalar_outputs: bool = False
    """Keep integers that depend on the values of tensors in the graph: `.item()`, `.tolist()`."""

    capture_dynamic_output_shape_ops: bool = True
    """Keep tensors in the graph whose sizes depend on values: the results of `nonzero`, boolean
    masks, `unique`. docs/using.md says why this is on and the other is off.
    """

    capture_data_dependent_sizes: bool = False
    """Both."""

    eager_where_faster: bool = True
    """Time some calls as they are written, on the CPU, once nothing more is compiled, and run calls
    so where compiled ones take longer: those of few small operators may. Off under `strict`.
    """

    @property
    def of_data(self) -> OfData:
        """What the graph keeps that depends on the values of tensors."""
        both = self.capture_data_dependent_sizes
        return OfData(
            both or self.capture_scalar_outputs, both or self.capture_dynamic_output_shape_ops
        )

    @classmethod
    def from_user(cls, given: dict[str, Any] | None) -> Options:
        """Build options from a user's dictionary. TypeError: a name is not known, or a value is of
        another type than the option's. ValueError: it is not a value that the option may have.
        """
        given = dict(given or {})
        if os.environ.get("FUSEWRIGHT_STRICT") == "1":
            given.setdefault("strict", True)
        if target := os.environ.get("FUSEWRIGHT_TARGET"):
            given.setdefault("target", target)
        defaults = {field.name: field.default for field in fields(cls)}
        for name, value in given.items():
            if name not in defaults:
                raise TypeError(f"unknown option {name!r}; {did_you_mean(str(name), defaults)}")
            wanted = type(defaults[name])
            if type(value) is not wanted and (wanted, type(value)) != (float, int):
                raise TypeError(
                    f"option {name!r} takes a value of {wanted.__name__}, not {value!r}"
                )
            words, allows = ALLOWED.get(name, ("", None))
            if allows is not None and not allows(value):
                raise ValueError(f"option {name!r} has to be {words}, not {value!r}")
        return cls(**given)


def front_end_options(given: dict[str, Any] | None) -> Options:
    """The options in `given` that capture reads, whatever the backend, which reads the others."""
    return Options.from_user(
        {name: value for name, value in (given or {}).items() if name in FRONT_END_OPTIONS}
    )
