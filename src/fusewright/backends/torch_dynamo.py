"""The entry point for `torch.compile(f, backend="fusewright")`: torch's front end, this compiler
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fusewright.aot import has_symbols
from fusewright.backends.registry import Backend
from fusewright.backends.shape_environment import EnvironmentSizes
from fusewright.config import Options
from fusewright.context import CompileContext, FusedBackend
from fusewright.errors import BackendCompilerFailed, RaisesInBackward
from fusewright.pipeline import compile_graph, stage_failure, warn_of_eager
from fusewright.records import record
from fusewright.runtime.targets import register_loader

if TYPE_CHECKING:  # It brings all kernels along.
    from fusewright.kernels import KernelLanguage


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
    passes as ints. A graph that cannot be compiled runs eagerly with one warning; under `strict` it
    is an error.

    `options`: the fields of `fusewright.config.Options`. `mode`: one of `config.MODES`, or None.

    Raises: TypeError for unknown options, BackendCompilerFailed under `strict`.
    """
    return _compile(module, example_inputs, options, mode, None)


def kernel_backend(language: KernelLanguage) -> Backend:
    """A backend that does what `fusewright` does, with kernels written in another language.

    ValueError: there is another language of this name.
    """
    register_loader(language.name, language.load)

    def backend(
        module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: dict[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Any]:
        return _compile(module, example_inputs, options, mode, language)

    return backend


def fused_backend(take: FusedBackend) -> Backend:
    """A backend that does what `fusewright` does, and hands each graph of fused kernels to `take`,
    which runs it.
    """

    def backend(
        module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: dict[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Any]:
        return _compile(module, example_inputs, options, mode, None, take)

    return backend


def _compile(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: dict[str, Any] | None,
    mode: str | None,
    language: KernelLanguage | None,
    take_fused: FusedBackend | None = None,
) -> Callable[..., Any]:
    """The compiled graph, or under a warning the graph itself."""
    context = CompileContext(options=Options.from_user(options, mode), fused_backend=take_fused)
    try:
        sizes = EnvironmentSizes()
        examples = _examples(module, example_inputs, sizes)
        compiled = compile_graph(module, examples, context, language)
        sizes.tell()
        return compiled
    except RaisesInBackward as error:  # as eager does, whose words and lines it has to have
        failure = stage_failure(error, context, module.graph)
        return EagerGraph(module.forward, failure, raises_in_backward=True)
    except Exception as error:
        failure = stage_failure(error, context, module.graph)
        if context.options.strict:
            raise failure from error
        warn_of_eager(failure, "a graph")
        return EagerGraph(module.forward, failure)


@record
class EagerGraph:
    """A graph that could not be compiled, and runs as it is."""

    run: Callable[..., Any]
    failure: BackendCompilerFailed
    raises_in_backward: bool = False
    """Whether that is why: eager's backward raises as well."""

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)


def _examples(
    module: fx.GraphModule, example_inputs: Sequence[Any], sizes: EnvironmentSizes
) -> Sequence[Any]:
    """The examples, or where sizes are dynamic fakes made from those of the front end, which know
    the symbols.
    """
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    fakes = [node.meta.get("example_value") for node in placeholders]
    if not any(map(has_symbols, fakes)):
        return example_inputs
    examples = [*map(sizes.example, fakes)]
    by_node = dict(zip(placeholders, examples, strict=True))
    for node in module.graph.find_nodes(op="call_method", target="item"):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymFloat) and node.args[0] in by_node:
            sizes.fix(by_node[node.args[0]], value)
    return examples
