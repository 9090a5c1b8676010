"""The registry of backends: what `backend="name"` means, here and for backends of other packages.

A backend takes a captured graph and example inputs, and returns what runs in the graph's place:

    @register_backend
    def my_backend(graph_module: fx.GraphModule, example_inputs: Sequence[Tensor]):
        return graph_module.forward

    fusewright.compile(f, backend="my_backend")

A package offers one to everybody who installs it by an entry point in the group
`torch_dynamo_backends`, which torch.compile reads as well; it is imported when it is first asked
for:

    [project.entry-points.torch_dynamo_backends]
    my_backend = "my_package.compiler:my_backend"
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.config import FRONT_END_OPTIONS, Options
from fusewright.context import COLLECTOR_PAUSE
from fusewright.errors import UnknownBackend
from fusewright.records import record

Backend = Callable[..., Callable[..., Any]]
"""`(graph_module, example_inputs) -> callable`; the callable takes the graph's inputs, one by one,
and returns a tuple or list of tensors. Where the user gives `options` or a `mode`, the backend
receives them as keywords.
"""

ENTRY_POINT_GROUP: Final = "torch_dynamo_backends"
"""The group that torch.compile reads, too."""


@record(kw_only=True)
class RegisteredBackend:
    """One row of the registry."""

    name: str
    tags: tuple[str, ...]
    """`debug` for backends that serve to find faults, `experimental` for unfinished ones."""

    load: Callable[[], Backend]
    """Imports the backend."""

    registered: Callable[..., Any] | None = None
    """The callable that a user has registered; None for a backend of ours."""

    level: str = "torch"
    """The kind of graphs that it takes; one of `LEVELS`."""


def _built_in(name: str, path: str, *tags: str) -> RegisteredBackend:
    """A row for a backend of ours, `path` being `module:function`."""
    module, _, attribute = path.partition(":")
    load = functools.partial(_import_backend, f"fusewright.backends.{module}", attribute)
    return RegisteredBackend(name=name, tags=tags, load=load)


def _import_backend(module: str, attribute: str) -> Backend:
    with COLLECTOR_PAUSE:
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


LEVELS: Final = ("torch", "fused")
"""The kinds of graphs that a backend may take."""

_OWN_MODULE: Final = "fusewright.backends.torch_dynamo"
"""Where backend `fusewright` stands; not imported until it is asked for."""

_REGISTRY: Final[dict[str, RegisteredBackend]] = {
    row.name: row
    for row in (
        _built_in("eager", "eager:eager", "debug"),
        _built_in("aot_eager", "aot_eager:aot_eager", "debug"),
        _built_in(
            "aot_eager_default_partitioner", "aot_eager:aot_eager_default_partitioner", "debug"
        ),
        _built_in("aot_eager_decomp_partition", "aot_eager:aot_eager_decomp_partition", "debug"),
        _built_in("cudagraphs", "cuda_graphs:cudagraphs"),
        _built_in("aot_cudagraphs", "cuda_graphs:cudagraphs"),
        _built_in("loops_eager", "loops_eager:loops_eager", "debug"),
        _built_in("stage_check", "stage_check:stage_check", "debug"),
        _built_in("fusewright", "torch_dynamo:fusewright"),
    )
}


def register_backend(
    compiler_fn: Backend | None = None,
    name: str | None = None,
    tags: Sequence[str] = (),
    level: str = "torch",
) -> Any:
    """Make a backend known by name; also a decorator, with or without arguments.

    `name`: the function's own by default. `tags`: words that `list_backends` can leave out.
    `level`: what graphs it is given. `torch`: those that were captured, of torch calls. `fused`:
    those that this compiler has made of them, whose nodes allocate memory, launch fused kernels and
    call libraries; forward and backward come by themselves, and it takes the options of backend
    `fusewright`. docs/writing-a-backend.md tells of both.
    Returns `compiler_fn`. Raises: ValueError when another backend has the name, when there is
    none to take, or for another level; TypeError when it is not callable.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags, level=level)
    if not callable(compiler_fn):
        raise TypeError(f"a backend is a callable, not {compiler_fn!r}")
    if level not in LEVELS:
        raise ValueError(f"a backend's level is one of {', '.join(LEVELS)}, not {level!r}")
    name = name or getattr(compiler_fn, "__name__", None)
    if name is None or name == "<lambda>":
        raise ValueError(f"{compiler_fn!r} has no name of its own: give one, name=…")
    earlier = _REGISTRY.get(name)
    if earlier is not None and (
        earlier.level != level or _registered_callable(earlier) is not compiler_fn
    ):
        raise ValueError(f"there is a backend named {name!r} already")
    load = functools.partial(_take_fused if level == "fused" else _as_it_is, compiler_fn)
    _REGISTRY[name] = RegisteredBackend(
        name=name, tags=tuple(tags), load=load, registered=compiler_fn, level=level
    )
    return compiler_fn


def _registered_callable(backend: RegisteredBackend) -> Callable[..., Any]:
    return backend.load() if backend.registered is None else backend.registered


def _as_it_is(backend: Backend) -> Backend:
    return backend


@functools.cache
def _take_fused(take: Callable[..., Any]) -> Backend:
    backend: Backend = _import_backend(_OWN_MODULE, "fused_backend")(take)
    return backend


def list_backends(exclude_tags: Collection[str] | None = ("debug", "experimental")) -> list[str]:
    """Names of the backends that are registered here or installed, without one of the tags; nothing
    is imported.
    """
    unwanted = set(exclude_tags or ())
    registered = {row.name for row in _REGISTRY.values() if not unwanted & set(row.tags)}
    installed = {name for name in _entry_points() if name not in _REGISTRY}
    return sorted(registered | installed)


def lookup_backend(name: str) -> Backend:
    """The backend of a name, imported if it was not yet.

    Raises: UnknownBackend, with the nearest names; ImportError when an installed backend cannot be
    imported.
    """
    row = _REGISTRY.get(name)
    if row is not None:
        return row.load()
    point = _entry_points().get(name)
    if point is None:
        raise UnknownBackend(name, list_backends(exclude_tags=None))
    try:
        backend = point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "?"
        raise ImportError(
            f"backend {name!r} of the installed package {package!r} ({point.value}) cannot be "
            f"imported: {type(error).__name__}: {error}"
        ) from error
    register_backend(backend, name=name)
    return backend  # type: ignore[no-any-return]


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """The backends of installed packages, by name; the first package wins. Read anew each time,
    since packages come and go.
    """
    points: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        points.setdefault(point.name, point)
    return points


def configured_backend(
    backend: str | Backend, mode: str | None, options: dict[str, Any] | None
) -> Callable[[fx.GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]:
    """A backend by name or by itself, with the user's mode and options bound.

    Backend `fusewright` takes every option; another one those that do not belong to the front end,
    as `options`. Raises: UnknownBackend; ValueError for a mode that fusewright has not; TypeError
    for an option that nobody takes, and for a backend that cannot be called.
    """
    function = lookup_backend(backend) if isinstance(backend, str) else backend
    if not callable(function):
        raise TypeError(f"a backend is a name or a callable, not {function!r}")
    keywords: dict[str, Any] = {}
    if mode not in (None, "default"):
        keywords["mode"] = mode
    if getattr(function, "__module__", None) == _OWN_MODULE:
        Options.from_user(options, mode)
        return functools.partial(function, options=options, **keywords)
    rest = {key: value for key, value in (options or {}).items() if key not in FRONT_END_OPTIONS}
    if rest:
        keywords["options"] = rest
    for keyword, value in keywords.items():
        if not _accepts(function, keyword):
            name = backend_name(backend)
            raise TypeError(f"backend {name!r} takes no {keyword}; it was given {value!r}")
    return functools.partial(function, **keywords) if keywords else function


def is_own_backend(backend: Backend) -> bool:
    """Whether a backend comes with fusewright; it may be bound to options."""
    function = backend.func if isinstance(backend, functools.partial) else backend
    return (getattr(function, "__module__", None) or "").startswith("fusewright.")


def backend_name(backend: str | Backend) -> str:
    """The name of a backend in messages."""
    return backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))


def _accepts(function: Backend, keyword: str) -> bool:
    """Whether a callable takes an argument by this name."""
    try:
        inspect.signature(function).bind_partial(None, None, **{keyword: None})
    except TypeError:
        return False
    except ValueError:  # no signature to ask
        return True
    return True
