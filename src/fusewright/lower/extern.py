"""Library calls: operators without a rule run as eager's own, on buffers and views of buffers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.errors import Unsupported
from fusewright.ir.index import Index
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    CallSubprogram,
    Enumerated,
    Layout,
    ListOf,
    Literal,
    Operand,
    ViewReference,
)
from fusewright.lower.boxes import Box
from fusewright.lower.builder import Call, ProgramBuilder
from fusewright.opaque import BUFFERS
from fusewright.operators import facts
from fusewright.symbolic.real import Real
from fusewright.torch_compat import (
    OpOverload,
    has_effect,
    operator_arguments,
    operator_returns,
    overload_by_name,
    written_arguments,
)

_ENUMERATED = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


def call_extern(
    call: Call, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """Run the operator of `node` as eager does; the value is that of `node`: a box, or a tuple with
    None for unused.

    Raises: Unsupported, for what is no ATen-like operator, or an argument that no operand
    expresses.
    """
    target = node.target
    if hasattr(target, "graphs"):
        return _call_subprogram(call, node, arguments)
    if not isinstance(target, OpOverload):
        raise Unsupported(f"{target} has no lowering", node.meta.get("location"))
    builder = call.builder
    builder.context.note("extern", call.operator, str(node.meta.get("location") or ""))
    if facts(target).ignores_values:
        arguments = (_unread(builder, arguments[0]), *arguments[1:])
    if not written_arguments(target):
        arguments = tuple(_lying_as_eagers(call, argument) for argument in arguments)
    operands = tuple(operand(builder, argument) for argument in arguments)
    named = tuple((name, operand(builder, value)) for name, value in keywords.items())
    written = tuple(_buffers(target, written_arguments(target), operands, named))
    for name in written:
        builder.realise_readers(name)
    is_list = isinstance(node.meta["val"], (tuple, list))
    outputs, results = _outputs(call, node)
    out_operator = "" if is_list or not outputs else out_variant(target)
    kernel = CallOperator(
        outputs=tuple(outputs),
        operator=call.operator,
        arguments=operands,
        keywords=named,
        results=tuple(results) if is_list else (),
        mutates=written,
        aliases=tuple(_aliases(target, outputs, operands, named)),
        out_operator=out_operator,
        gives_new_memory=not out_operator and facts(target).gives_new_memory,
        has_effect=has_effect(target),
        reads_moved=node.meta.get("reads_moved", False),
    )
    boxes = _added(call, kernel, results)
    return boxes if is_list else boxes[0]


def call_library(
    call: Call,
    target: OpOverload,
    arguments: Sequence[Box],
    keywords: Mapping[str, bool | int],
    layouts: Sequence[Layout],
) -> list[Box]:
    """The results, which lie so, of an operator that a rule runs as eager does."""
    builder = call.builder
    outputs = tuple(builder.buffer(layout) for layout in layouts)
    out_operator = out_variant(target) if len(outputs) == 1 else ""
    statement = CallOperator(
        outputs=outputs,
        operator=str(target),
        arguments=tuple(builder.operand(argument) for argument in arguments),
        keywords=tuple((name, Literal(value)) for name, value in keywords.items()),
        results=tuple(range(len(outputs))) if len(outputs) > 1 else (),
        out_operator=out_operator,
        gives_new_memory=not out_operator and facts(target).gives_new_memory,
    )
    builder.statements.append(statement)
    builder.origins[outputs[0].name] = call.all_origins
    return [builder.input(output) for output in outputs]


def _lying_as_eagers(call: Call, argument: Any) -> Any:
    """An argument of as many dimensions as a result, which may come to lie as the argument does: it
    has to lie as eager's, lest the result is copied.
    """
    builder = call.builder
    if not builder.free_layouts or not isinstance(argument, Box):
        return argument
    if all(len(layout.size) != argument.rank for layout in call.results):
        return argument
    storage = argument.storage
    if storage.is_lazy:
        storage.is_fixed = True
    elif argument.position is None and builder.realise(argument).name in builder.free_layouts:
        return builder.copy(argument, storage.stride)
    return argument


def _unread(builder: ProgramBuilder, box: Box) -> Box:
    """Memory of any content in place of a tensor that is not computed yet."""
    storage = box.storage
    if not storage.is_lazy or box.position is not None:
        return box
    return builder.input(builder.unfilled(storage.layout_in_memory()))


def _call_subprogram(call: Call, node: fx.Node, arguments: tuple[Any, ...]) -> Any:
    """A call of what was compiled for the graphs of a condition or loop, under the node's name."""
    outputs, results = _outputs(call, node)
    kernel = CallSubprogram(
        outputs=tuple(outputs),
        name=node.name,
        arguments=tuple(operand(call.builder, argument) for argument in arguments),
        results=tuple(results),
    )
    return _added(call, kernel, results)


def _outputs(call: Call, node: fx.Node) -> tuple[list[Buffer], list[int | None]]:
    """Buffers for the results that are used, and for each result its position among them."""
    meta = node.meta["val"]
    is_list = isinstance(meta, (tuple, list))
    used = _used_results(node) if is_list else None
    outputs: list[Buffer] = []
    results: list[int | None] = []
    layouts = iter(call.results)
    for position, value in enumerate(meta if is_list else (meta,)):
        layout = next(layouts) if isinstance(value, BUFFERS) else None
        if layout is None or (used is not None and position not in used):
            results.append(None)
        else:
            results.append(len(outputs))
            outputs.append(call.builder.buffer(layout))
    return outputs, results


def _added(
    call: Call, kernel: CallOperator | CallSubprogram, results: Sequence[int | None]
) -> tuple[Box | None, ...]:
    """Add a statement; gives the boxes of its results, None for unused."""
    builder, outputs = call.builder, kernel.outputs
    builder.statements.append(kernel)
    for buffer in outputs:
        builder.find_out_sizes(buffer)
    if outputs:
        builder.origins[outputs[0].name] = call.all_origins
    return tuple([None if place is None else builder.input(outputs[place]) for place in results])


def operand(builder: ProgramBuilder, argument: Any) -> Operand:
    """`argument` as a library call takes it; boxes are realised."""
    match argument:
        case Box():
            return builder.operand(argument)
        case Index():
            return argument
        case list():
            return ListOf(tuple(operand(builder, item) for item in argument))
        case Real():
            return builder.real_symbol(argument).index
        case None | bool() | int() | float() | complex() | str():
            return Literal(argument)
    kind = _ENUMERATED.get(type(argument))
    if kind is None:
        raise Unsupported(f"an argument of type {type(argument).__name__} to a library call")
    return Enumerated(kind, str(argument).removeprefix("torch."))


@functools.cache
def out_variant(target: OpOverload) -> str:
    """The qualified name of the out-variant to use in place of `target`, or empty."""
    if not facts(target).writes_its_out:
        return ""
    namespace, name = target.name().split(".")[0].split("::")
    candidate = overload_by_name(namespace, name, "out")
    if candidate is None:
        return ""
    own = [(a.name, str(a.type)) for a in operator_arguments(target)]
    out = [(a.name, str(a.type)) for a in operator_arguments(candidate)]
    return str(candidate) if out == [*own, ("out", "Tensor")] else ""


def _used_results(node: fx.Node) -> set[int]:
    """Positions that are read; all of them when the whole tuple goes somewhere else."""
    items = [user for user in node.users if user.target is operator.getitem]
    if len(items) < len(node.users):
        return set(range(len(node.meta["val"])))
    return {int(item.args[1]) for item in items}  # type: ignore[arg-type]


def _buffers(
    target: OpOverload,
    names: tuple[str, ...],
    operands: tuple[Operand, ...],
    named: tuple[tuple[str, Operand], ...],
) -> Iterator[str]:
    """Names of the buffers that the arguments called `names` refer to."""
    positional = zip((a.name for a in operator_arguments(target)), operands, strict=False)
    for name, value in (*positional, *named):
        if name in names:
            for item in value.items if isinstance(value, ListOf) else (value,):
                if isinstance(item, (BufferReference, ViewReference)):
                    yield item.name


def _aliases(
    target: OpOverload,
    outputs: list[Buffer],
    operands: tuple[Operand, ...],
    named: tuple[tuple[str, Operand], ...],
) -> Iterator[tuple[str, str]]:
    """Pairs (output, argument buffer) that share memory, by the operator's schema."""
    if not any(result.alias_info is not None for result in operator_returns(target)):
        return
    shared = tuple(a.name for a in operator_arguments(target) if a.alias_info is not None)
    for buffer in outputs:
        for name in _buffers(target, shared, operands, named):
            yield buffer.name, name
