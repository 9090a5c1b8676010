"""The public entry points: `compile` a function or module, `explain` what that does, `disable` it,
`reset` what was compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusewright import native
from fusewright.backends.registry import (
    Backend,
    backend_name,
    configured_backend,
    list_backends,
    lookup_backend,
    register_backend,
)
from fusewright.capture import reasons
from fusewright.capture.directives import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    graph_break,
    is_compiling,
)
from fusewright.capture.dynamic_shapes import DynamicShapes
from fusewright.capture.sizes import mark_dynamic
from fusewright.capture.trace import CALL_MODULE, root_call
from fusewright.compilation import Compilation, Settings
from fusewright.compiled import (
    CompiledFunction,
    CompiledModule,
    compiled_module,
    compiler_of,
    is_compiled,
    original_of,
    recompile_of,
    suspended_kind,
)
from fusewright.compiler import Compiler, reset
from fusewright.config import front_end_options
from fusewright.errors import Location, Unsupported
from fusewright.exported import exporter
from fusewright.inspect.explain import Explainer
from fusewright.logs import warn


def compile(
    target: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = True,
    dynamic_shapes: Any = None,
    shapes_spec: None = None,
) -> Any:
    """Compile a function or an `nn.Module`; also a decorator, with or without arguments.

    The first call with arguments of some kind (shapes, dtypes, the Python values that were read)
    captures and compiles; later calls of that kind run the compiled code. A compiled module is the
    module itself with a compiled call: it has the same attributes, parameters and state, and is an
    instance of the same class. Any number of threads may compile and call at once.

    `fullgraph`: what cannot be captured is an error instead of a graph break. `dynamic`: None
    compiles for the sizes of the first call, and once more for any size where they were seen to
    vary; True for any size from the start; False for these sizes alone. `backend`: a name of
    `list_backends()`, or a callable `(graph_module, example_inputs) -> callable`; None:
    "fusewright". `mode`: a name for some options, as torch.compile has them: "reduce-overhead"
    replays CUDA graphs, "max-autotune" also tunes kernels. `options`: the fields of
    `fusewright.config.Options`; those that do not belong to capture go to the backend. `disable`:
    return the target as it is. `name`: what reports call it. `recompile_limit`: the option of that
    name. `isolate_recompiles`: each call of `compile` keeps its own compiled code and limits, so
    this is always True. `dynamic_shapes`: what `torch.export.export` takes by that name, in place
    of `dynamic`: for sizes by parameter and dimension, a `torch.export.Dim` (any size), `Dim.AUTO`
    (found out) or None (static, as all that is not named). `shapes_spec`: None.

    Raises: ValueError for an unknown backend or mode, an option out of its range, or what is not
    available; TypeError for a target that is not callable or a class, for an unknown option, and
    for an argument of another type. When called: `Unsupported` and `RecompileLimitExceeded` under
    `fullgraph` or strict, `BackendCompilerFailed`, and `WrongShape` where `dynamic_shapes` errs.
    """
    keywords: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
        "dynamic_shapes": dynamic_shapes,
        "shapes_spec": shapes_spec,
    }
    again: Callable[..., Any] = functools.partial(compile, **keywords)
    if target is None:
        return functools.partial(again, disable=disable)
    if isinstance(target, classmethod | staticmethod):
        return type(target)(again(target.__func__, disable=disable))
    _check_target(target)
    if not isinstance(options, Mapping | None):
        raise TypeError(f"options are a dictionary of names and values, not {options!r}")
    _check_dynamic(dynamic, dynamic_shapes, shapes_spec)
    if disable:
        return target
    backend = backend or "fusewright"
    limit = {} if recompile_limit is None else {"recompile_limit": recompile_limit}
    settings = Settings(
        backend=configured_backend(backend, mode, options),
        backend_name=backend_name(backend),
        fullgraph=fullgraph,
        dynamic=dynamic,
        dynamic_shapes=_dynamic_shapes(dynamic_shapes, target),
        options=front_end_options({**(options or {}), **limit}, is_one_graph=fullgraph),
        name=name,
    )
    target = original_of(target)
    if isinstance(target, torch.nn.Module):
        return compiled_module(target, Compiler(settings), again)
    kind = suspended_kind(target)
    if kind is not None:
        return _uncompiled(target, kind, settings)
    return CompiledFunction(target, Compiler(settings), again)


def _check_dynamic(dynamic: Any, dynamic_shapes: Any, shapes_spec: Any) -> None:
    if not isinstance(dynamic, bool | None):
        raise TypeError(f"dynamic is None, True or False, not {dynamic!r}")
    if shapes_spec is not None:
        raise ValueError("shapes_spec is not available; dynamic_shapes says the same")
    if dynamic is not None and dynamic_shapes is not None:
        raise ValueError("dynamic says of all sizes what dynamic_shapes says of each: give one")


def _dynamic_shapes(spec: Any, target: Callable[..., Any]) -> DynamicShapes | None:
    """The shapes of a target's arguments as `dynamic_shapes` states them."""
    if spec is None:
        return None
    target = original_of(target)
    is_module = root_call(target, (), {})[0] is CALL_MODULE
    described = target.forward if isinstance(target, torch.nn.Module) else target
    return DynamicShapes.of(spec, described, is_module=is_module)


def _check_target(target: Any) -> None:
    if not callable(target):
        raise TypeError(f"fusewright.compile takes a function or a module, not {target!r}")
    if isinstance(target, type):
        raise TypeError(
            f"fusewright.compile takes a function or an object that is called, not the class "
            f"{target.__qualname__}: compile an instance of it, or its method"
        )


def _uncompiled(function: Callable[..., Any], kind: str, settings: Settings) -> Callable[..., Any]:
    """A function that cannot be compiled, as it is, with a warning; an error where that is asked
    for.
    """
    code = root_call(function, (), {})[0].__code__
    place = Location(code.co_filename, code.co_firstlineno).with_text()
    reason = reasons.GENERATOR_ESCAPES
    what = reason.text(function=code.co_qualname, kind=kind)
    error = Unsupported(what, place, reason.remedy, reason.name)
    if settings.refuses:
        raise error
    warn(f"running eagerly from {error}")
    return function


def export(target: Any, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    """One graph of a call: `export(f)(*args, **kwargs)`, or at once `export(f, *args, **kwargs)`.

    The result has a `graph_module`, which takes the call's arguments and returns what it returns;
    parameters, buffers and other tensors that the call reads are its attributes. Sizes, and all
    other values, are those of the call: the result's `guards` say what was relied on. Nothing is
    compiled, and the program does not run. `options`: as `compile` takes them.

    Raises: `Unsupported`, which names the file and line, for what would break the graph, and for a
    call that changes objects or returns what no graph makes.
    """
    exports = exporter(target, options)
    return exports(*args, **kwargs) if args or kwargs else exports


def run(target: Callable[..., Any]) -> Callable[..., Any]:
    """`target`, run with what is compiled, and never compiled: a call for which no compiled code
    holds runs as it is. Also a decorator.

    It is a compiled function or module, or whatever calls such. The backward half of a graph that
    was compiled for training is compiled when it first runs, as ever.
    """

    @functools.wraps(target, updated=())
    def running(*args: Any, **kwargs: Any) -> Any:
        return native.run_only(target, *args, **kwargs)

    return running


def compilations(target: Any) -> tuple[Compilation, ...]:
    """The compilations of a compiled function or module so far, oldest first.

    Raises: TypeError when `target` did not come from `compile`.
    """
    return tuple(compiler_of(target).compilations)


def explain(target: Any, **keywords: Any) -> Explainer:
    """Explain what compiling a function or module does, and why: `print(explain(f)(*args))`.

    Calling the result calls the target, compiled anew with the keywords of `compile`; what the
    target itself has compiled stays as it is, and `explain(compiled).history` tells of it. Without
    keywords, a compiled target is compiled as it was.
    """
    history = compiler_of(target) if is_compiled(target) else None
    again = compile if history is None or keywords else recompile_of(target)
    fresh = again(original_of(target), **keywords)
    return Explainer(fresh, compiler_of(fresh), history)


__all__ = [
    "Compilation",
    "CompiledFunction",
    "CompiledModule",
    "Compiler",
    "allow_in_graph",
    "assume_constant_result",
    "compilations",
    "compile",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "register_backend",
    "reset",
    "run",
]
