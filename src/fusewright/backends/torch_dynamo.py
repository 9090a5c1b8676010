"""The entry point for `torch.compile(f, backend="fusewright")`: torch's front end, this compiler
behind it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot import has_symbols
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import BackendCompilerFailed, Location, Unsupported
from fusewright.pipeline import compile_graph


def fusewright(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph captured by torch's front end; the result takes the graph's inputs and gives
    a tuple.

    Sizes that the front end holds to be dynamic are symbols in the compiled code, whose values it
    passes as ints. A graph that needs gradients, or that cannot be compiled, runs eagerly with one
    warning; under `strict` it is an error.

    `options`: the fields of `fusewright.config.Options`. `mode`: None or "default" until there are
    more.

    Raises: TypeError for unknown options, BackendCompilerFailed under `strict`.
    """
    if mode not in (None, "default"):
        raise ValueError(f"mode {mode!r} is not known to fusewright; it has 'default'")
    context = CompileContext(options=Options.from_user(options))
    try:
        if _needs_gradients(example_inputs):
            raise Unsupported("the graph needs gradients", None, _TRAINING_REMEDY)
        return compile_graph(module, _examples(module, example_inputs), context)
    except Exception as error:
        location = getattr(error, "location", None)
        if context.options.strict:
            stage = list(context.timings)[-1] if context.timings else "start"
            raise BackendCompilerFailed("fusewright", stage, location, str(error)) from error
        _warn_of_eager(error, location)
        return module.forward


_TRAINING_REMEDY = (
    "call it under torch.no_grad(), or torch.inference_mode(), until training is compiled"
)


def _needs_gradients(example_inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )


def _examples(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Sequence[Any]:
    """The examples, or where sizes are dynamic the front end's own fake inputs, which tell the
    symbols.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("example_value") for node in placeholders]
    return fakes if any(has_symbols(value) for value in fakes) else example_inputs


def _warn_of_eager(error: Exception, location: Location | None) -> None:
    text = f"{type(error).__name__}: {error}".strip()
    at = "" if location is None or str(location) in text else f" (at {location})"
    warnings.warn(
        f"fusewright runs a graph eagerly, since it cannot compile it{at}: {text}\n"
        "FUSEWRIGHT_STRICT=1 makes this an error.",
        RuntimeWarning,
        stacklevel=2,
    )
