"""The first stage: whether what was captured of a call, run eagerly, does what the call does."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import native
from fusewright.api import compile as compile_target
from fusewright.bisection.differences import Difference, Expected, difference
from fusewright.bisection.observe import SEED, copies, with_histories
from fusewright.bisection.outside import Outside
from fusewright.bisection.search import Trouble, ValueRecorder
from fusewright.capture import reasons
from fusewright.capture.trace import root_call
from fusewright.compiled import compiler_of, original_of
from fusewright.errors import Location
from fusewright.events import BackendFailed, GraphBreak, RanEagerly
from fusewright.records import record, replace
from fusewright.torch_compat.trees import flatten_tree


@record(kw_only=True)
class CapturedGraph:
    """A graph as it was called."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]


@record(kw_only=True)
class Seen:
    """All that a call leaves behind: results, arguments, and the tensors and numbers of modules."""

    values: Mapping[str, Any]


Check = Callable[[fx.GraphModule, Sequence[Any]], None]
"""Is given each captured graph and the inputs of its call, under the modes of that call."""


def check_capture(
    target: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    keywords: Mapping[str, Any],
    check: Check,
) -> Trouble | None:
    """The trouble with what capture makes of a call; its graphs, run eagerly, are handed to
    `check`. The target and its arguments stay as they are. Raises what the call itself raises.
    """
    target = original_of(target)
    outside = Outside.of(target)
    expected = _seen(*_copied(target, args, kwargs), outside)
    graphs: list[CapturedGraph] = []

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        @native.disable
        def run(*inputs: Any) -> Any:
            kept = tuple(with_histories(copies(inputs), inputs))
            graphs.append(CapturedGraph(graph=graph, inputs=kept))
            check(graph, kept)
            return graph(*inputs)

        return run

    copied, own_args, own_kwargs = _copied(target, args, kwargs)
    compiled = compile_target(copied, **{**keywords, "backend": backend})
    place = _place(target, args, kwargs)
    try:
        observed = _seen(compiled, own_args, own_kwargs, outside, of=copied)
    except Exception as error:
        location = getattr(error, "location", None) or place
        return Trouble(
            stage="capture", what="the call", differs=None, error=error, origins=(location,)
        )
    for event in compiler_of(compiled).events:
        if isinstance(event, BackendFailed) or _is_internal(event):
            message = getattr(event, "what", None) or getattr(event, "message", "")
            return Trouble(
                stage="capture",
                what="the call",
                differs=None,
                error=RuntimeError(message),
                origins=(getattr(event, "location", None) or place,),
            )
    trouble = _first_difference(expected, observed)
    if trouble is None:
        return None
    line = _first_line(target, args, kwargs, graphs)
    return replace(trouble, origins=(line or place,))


def _is_internal(event: Any) -> bool:
    """Whether an event tells of an error of the compiler's own."""
    if isinstance(event, GraphBreak):
        return event.reason == reasons.INTERNAL_ERROR.name
    return isinstance(event, RanEagerly) and "defect of" in str(event)


def _place(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Location:
    """The place where a target is defined."""
    is_module = isinstance(target, torch.nn.Module)
    method = type(target).forward if is_module else None
    code = getattr(method, "__code__", None)
    if code is None:
        code = root_call(target, tuple(args), dict(kwargs))[0].__code__
    return Location(code.co_filename, code.co_firstlineno).with_text()


def _copied(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A target and its arguments, copied together, so that what they share stays shared."""
    leaves, _ = flatten_tree((tuple(args), dict(kwargs)))
    memo: dict[int, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and not leaf.is_leaf:
            memo[id(leaf)] = leaf.detach().clone().requires_grad_().clone()
    return copy.deepcopy((target, tuple(args), dict(kwargs)), memo)


def _seen(
    target: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outside: Outside,
    of: Any = None,
) -> Seen:
    """Call a target, keep what can be seen of that, and bring back what it changed outside."""
    state = torch.get_rng_state()
    torch.manual_seed(SEED)
    try:
        results = target(*args, **kwargs)
        values = dict(outside.values())
    finally:
        torch.set_rng_state(state)
        outside.restore()
    leaves, _ = flatten_tree(results)
    values |= {f"result {place}": _kept(leaf) for place, leaf in enumerate(leaves)}
    leaves, _ = flatten_tree((tuple(args), dict(kwargs)))
    values |= {f"argument {place} after the call": _kept(leaf) for place, leaf in enumerate(leaves)}
    values |= dict(_state_of(of if of is not None else target))
    return Seen(values=values)


def _kept(value: Any) -> Any:
    return copy.deepcopy(value.detach()) if isinstance(value, torch.Tensor) else value


def _state_of(target: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and numbers of a module, or of the object whose method is called."""
    owner = getattr(target, "__self__", target)
    modules = dict(owner.named_modules()) if isinstance(owner, torch.nn.Module) else {"": owner}
    for path, module in modules.items():
        fields = {**getattr(module, "__dict__", {})}
        fields |= fields.pop("_buffers", {})
        fields |= fields.pop("_parameters", {})
        for name, value in sorted(fields.items()):
            if isinstance(value, torch.Tensor | bool | int | float | str):
                full_name = f"{path}.{name}".lstrip(".")
                yield f"{full_name} after the call", _kept(value)


def _first_difference(expected: Seen, observed: Seen) -> Trouble | None:
    for name, eager in expected.values.items():
        if name not in observed.values:
            differs: Difference | None = Difference(kind="type", detail="it is not there")
        elif _is_plain(eager) or isinstance(eager, torch.Tensor):
            differs = difference(observed.values[name], Expected(eager=eager, exact=None))
        else:
            differs = None
        if differs is not None:
            return Trouble(stage="capture", what=name, differs=differs)
    return None


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | None)


# The line -----------------------------------------------------------------------------------------


def _first_line(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    graphs: Sequence[CapturedGraph],
) -> Location | None:
    """The line of the first operator of a captured graph that computes what the program does not;
    None where all are the program's.
    """
    copied, own_args, own_kwargs = _copied(target, args, kwargs)
    with _Results() as seen:
        _seen(copied, own_args, own_kwargs, Outside.of(copied))
    for captured in graphs:
        recorder = ValueRecorder(captured.graph)
        state = torch.get_rng_state()
        torch.manual_seed(SEED)
        try:
            recorder.run(*with_histories(copies(captured.inputs), captured.inputs))
        finally:
            torch.set_rng_state(state)
        for node, value in recorder.values.items():
            if not (isinstance(value, torch.Tensor) and node.op.startswith("call_")):
                continue
            location = node.meta.get("location")
            if _digest(value) not in seen.digests and location is not None:
                return location if isinstance(location, Location) else Location(*location)
    return None


class _Results(torch.overrides.TorchFunctionMode):
    """Keeps digests of all tensors that a program computes."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves, _ = flatten_tree(result)
        self.digests |= {_digest(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        return result


def _digest(tensor: torch.Tensor) -> str:
    """A digest of a tensor's type, shape and elements."""
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel():
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
