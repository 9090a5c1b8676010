"""Every option of a compile, in one frozen object: few knobs, each documented."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
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

TARGETS: Final = ("native", "python", "fx", "cpp")

DDP_SPLITS: Final = ("backward", "graph", "none")

DEBUG_LEVELS: Final = ("off", "save", "print", "kernel_names")

CHOICES: Final = ("off", "auto", "on")

KERNEL_TARGETS: Final = ("auto", "avx2", "avx512", "neon", "scalar")

ALLOWED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "expression_limit": ("at least 1", lambda limit: limit >= 1),
    "kernel_target": (f"one of {', '.join(KERNEL_TARGETS)}", lambda name: name in KERNEL_TARGETS),
    "target": (f"one of {', '.join(TARGETS)}", lambda name: name in TARGETS),
    "debug_printer": (f"one of {', '.join(DEBUG_LEVELS)}", lambda name: name in DEBUG_LEVELS),
    "memory_budget": ("between 0 and 1", lambda budget: 0 <= budget <= 1),
    "split_for_ddp": (f"one of {', '.join(DDP_SPLITS)}", lambda name: name in DDP_SPLITS),
    "multi_kernel": (
        f"one of {', '.join(CHOICES)}, or the number of an alternative",
        lambda value: value in CHOICES or value.isdecimal(),
    ),
    "recompile_limit": ("at least 1", lambda limit: limit >= 1),
    "accumulated_recompile_limit": ("at least 1", lambda limit: limit >= 1),
}
"""Values that an option may have, in words and as a question."""

ENVIRONMENT: Final = {
    "strict": "FUSEWRIGHT_STRICT",
    "target": "FUSEWRIGHT_TARGET",
    "debug_printer": "FUSEWRIGHT_DEBUG_PRINTER",
    "debug_kernels": "FUSEWRIGHT_DEBUG_KERNELS",
    "debug_folder": "FUSEWRIGHT_DEBUG_FOLDER",
    "multi_kernel": "FUSEWRIGHT_MULTI_KERNEL",
    "check_nan": "FUSEWRIGHT_CHECK_NAN",
    "check_layouts": "FUSEWRIGHT_CHECK_LAYOUTS",
    "graph_cache": "FUSEWRIGHT_GRAPH_CACHE",
}
"""Variables that choose an option where the user does not; `1` turns one on that is true or false,
and `0` off.
"""


MODES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "tune": True},
    "max-autotune-no-cudagraphs": {"tune": True},
}
"""By name of a mode, as torch.compile has them: the options that it stands for."""


KEYWORDS: Final = ("fullgraph", "dynamic", "backend", "mode", "disable", "dynamic_shapes")
"""Keywords of `compile` that somebody may look for among its options."""


ONE_GRAPH: Final[dict[str, Any]] = {"capture_scalar_outputs": True}
"""Options of a call that has to be one graph, where the user says nothing else: a graph break is
mostly quicker than an integer in the graph, but there it is an error.
"""


class OfData(NamedTuple):
    """The values of tensors that a graph keeps as symbols, in place of a graph break."""

    integers: bool = False
    sizes: bool = False


NOTHING: Final = OfData()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's choices about a compile; passed down explicitly, never read from ambient state."""

    strict: bool = False
    """Turn quiet fall-backs to eager into errors. Also turned on by `FUSEWRIGHT_STRICT=1`."""

    verify: bool = False
    """Run the IR verifier between stages. On in tests."""

    expression_limit: int = 64
    """A lazy value whose expression grows past this many operations is realised into a buffer."""

    target: str = "native"
    """The form of the code around the kernels: native, one C function; python, statements of the
    generated module; fx, nodes of a `GraphModule`; or cpp, generated C++, which g++ compiles. Also
    chosen by `FUSEWRIGHT_TARGET`.
    """

    debug_printer: str = "off"
    """The debug printer, by which compiled code reports each kernel and library call as it runs:
    `print`, the values that it reads and writes; `save`, the same as files in `debug_folder`;
    `kernel_names`, its name as it begins, and it has ended before the next; one of
    `DEBUG_LEVELS`. Also chosen by `FUSEWRIGHT_DEBUG_PRINTER`.
    """

    debug_kernels: str = ""
    """The kernels and library calls that `debug_printer` tells of, by name, with commas between, in
    any case; a `*` stands for any characters. Empty: all. Also chosen by
    `FUSEWRIGHT_DEBUG_KERNELS`.
    """

    debug_folder: str = "fusewright_debug"
    """Where `debug_printer="save"` keeps its files. Also chosen by `FUSEWRIGHT_DEBUG_FOLDER`."""

    check_nan: bool = False
    """Raise `NanFound` behind the first kernel or library call that writes NaN, or for an input
    that holds it. Also turned on by `FUSEWRIGHT_CHECK_NAN=1`.
    """

    check_layouts: bool = False
    """Check that each input has the type, sizes and strides that were compiled for. Also turned on
    by `FUSEWRIGHT_CHECK_LAYOUTS=1`.
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

    freeze: bool = False
    """Without gradients, take a module's parameters and buffers for constants: what depends on them
    alone is computed once, batch norms are folded into convolutions, and these have their channels
    last. A weight that changes later is noticed: all is computed anew, with one warning, or under
    `strict` FrozenWeightChanged is raised.
    """

    split_for_ddp: str = "backward"
    """Which graph is cut where a bucket of gradients of `DistributedDataParallel` is full, so that
    the bucket is reduced while other gradients are computed: backward; graph, the captured one, of
    which each piece is compiled by itself; or none.
    """

    cuda_graphs: bool = False
    """Record graphs on a GPU at their second call, and replay them as one launch. What
    `mode="reduce-overhead"` turns on.
    """

    tune: bool = False
    """Write each kernel in several ways while compiling, time them on random inputs, and take the
    fastest. What `mode="max-autotune"` turns on.
    """

    multi_kernel: str = "auto"
    """Where it is unclear which of several kernels is fastest, time them at the first call: on;
    auto, on the CPU, where another kernel takes milliseconds to compile; off; or a number: take
    that alternative, without timing. Nothing is timed while
    `torch.are_deterministic_algorithms_enabled()`. Also chosen by `FUSEWRIGHT_MULTI_KERNEL`.
    """

    multi_kernel_cache: bool = True
    """Keep on disk which kernel was fastest, for later processes."""

    multi_kernel_table: str = ""
    """A file of comma-separated values, to which a row is added for each kernel that is chosen:
    the alternatives and their times. What earlier processes found out does not count then.
    """

    graph_cache: bool = True
    """Keep on disk what is made of a graph, so that later processes go without the stages behind
    tracing. Turned off by `FUSEWRIGHT_GRAPH_CACHE=0`.
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
    """Keep integers that depend on the values of tensors in the graph: `.item()`, `.tolist()`. On
    where a call has to be one graph (`ONE_GRAPH`).
    """

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
        """The values of tensors that the graph keeps as symbols."""
        both = self.capture_data_dependent_sizes
        return OfData(
            both or self.capture_scalar_outputs, both or self.capture_dynamic_output_shape_ops
        )

    def has_choices_on(self, device_type: str) -> bool:
        """Whether kernels for a type of device may be chosen by measuring."""
        return self.multi_kernel not in ("off", "auto") or (
            self.multi_kernel == "auto" and (device_type == "cpu" or self.tune)
        )

    @classmethod
    def from_user(cls, options: dict[str, Any] | None, mode: str | None = None) -> Options:
        """Build options from a user's dictionary, which goes before what the mode stands for.
        TypeError: a name is not known, or a value is of another type than the option's. ValueError:
        it is not a value that the option may have, or there is no such mode.
        """
        mode = mode or "default"
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is not known; {did_you_mean(mode, MODES)}")
        options = {**MODES[mode], **(options or {})}
        defaults = {field.name: field.default for field in fields(cls)}
        for name, value in options.items():
            if name not in defaults:
                raise TypeError(f"unknown option {name!r}; {_hint(str(name), defaults)}")
            wanted = type(defaults[name])
            if type(value) is not wanted and (wanted, type(value)) != (float, int):
                raise TypeError(
                    f"option {name!r} takes a value of {wanted.__name__}, not {value!r}"
                )
            _check_value(name, value, f"option {name!r}")
        chosen: dict[str, Any] = {
            name: _read(name, variable, isinstance(defaults[name], bool))
            for name, variable in ENVIRONMENT.items()
            if name not in options and os.environ.get(variable)
        }
        return cls(**chosen, **options)


def _check_value(name: str, value: object, whose: str) -> None:
    """Raise ValueError, which begins with `whose`, for a value that the option may not have."""
    words, allows = ALLOWED.get(name, ("", None))
    if allows is not None and not allows(value):
        raise ValueError(f"{whose} has to be {words}, not {value!r}")


def _read(name: str, variable: str, is_flag: bool) -> str | bool:
    """The value of an option that a variable of the environment gives. Raises: ValueError."""
    text = os.environ[variable]
    if not is_flag:
        _check_value(name, text, variable)
        return text
    if text not in ("0", "1"):
        raise ValueError(f"{variable} has to be 0 or 1, not {text!r}")
    return text == "1"


def _hint(name: str, options: Iterable[str]) -> str:
    """The end of a message about an option that is not known: that it is a keyword, or the nearest
    options.
    """
    near = difflib.get_close_matches(name, KEYWORDS, n=1, cutoff=0.75)
    return f"{near[0]!r} is a keyword of compile" if near else did_you_mean(name, options)


def front_end_options(options: dict[str, Any] | None, *, is_one_graph: bool = False) -> Options:
    """The options in `given` that capture reads, whatever the backend, which reads the others."""
    given = (ONE_GRAPH if is_one_graph else {}) | (options or {})
    return Options.from_user(
        {name: value for name, value in given.items() if name in FRONT_END_OPTIONS}
    )
