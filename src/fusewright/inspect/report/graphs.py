"""The programs of a graph before and after fusion, as nodes and edges of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewright.inspect.explanation import shorten_paths
from fusewright.inspect.report.layout import layered
from fusewright.ir.group import Group
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    Buffer,
    CallOperator,
    CallSubprogram,
    CallUserKernel,
    ComputedBuffer,
    CopyBack,
    RowStatement,
    Scatter,
    Statement,
    operand_buffers,
)
from fusewright.ir.value import Load, postorder
from fusewright.records import record
from fusewright.runtime.compiled import Record
from fusewright.schedule.traffic import group_traffic


@record(kw_only=True)
class Node:
    """One statement or step."""

    label: str
    kind: str
    """`kernel`, `library` or `number`."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shape: str
    """The shape of the first buffer that it writes."""

    operators: tuple[str, ...]
    lines: tuple[str, ...]
    """`file:line`, each once."""

    kernel: str = ""
    bytes: int = 0
    step: int = -1
    """The step after fusion that computes it."""


def pictures(record: Record) -> dict[str, Any]:
    """Both pictures of a compiled graph, and the texts of lines that nodes name."""
    after = _steps(record)
    before = _statements(record, after)
    return {"before": _picture(before), "after": _picture(after)}


def _picture(nodes: Sequence[Node]) -> dict[str, Any]:
    writers: dict[str, int] = {}
    sources: list[list[int]] = []
    for number, node in enumerate(nodes):
        read = dict.fromkeys(writers[name] for name in node.reads if name in writers)
        sources.append([source for source in read if source != number])
        writers.update(dict.fromkeys(node.writes, number))
    places = layered(sources)
    return {
        "nodes": [
            {
                "label": node.label,
                "kind": node.kind,
                "layer": layer,
                "place": round(place, 2),
                "shape": node.shape,
                "operators": node.operators,
                "lines": node.lines,
                "kernel": node.kernel,
                "bytes": node.bytes,
                "step": node.step,
                "writes": node.writes,
            }
            for node, (layer, place) in zip(nodes, places, strict=True)
        ],
        "edges": [[source, number] for number, read in enumerate(sources) for source in read],
    }


def _steps(record: Record) -> list[Node]:
    nodes = []
    hints = record.program.hints
    launches = iter(record.launches)
    for number, step in enumerate(record.schedule.works):
        if not isinstance(step, Group):
            nodes.append(_row(step, record.program.origins, number))
            continue
        traffic = group_traffic(step, hints)
        nodes.append(
            Node(
                label=step.name.replace("_", " "),
                kind="kernel",
                reads=tuple(buffer.name for buffer in step.reads),
                writes=tuple(buffer.name for buffer in step.writes),
                shape=shape_of(step.writes),
                kernel=next(launches).kernel,
                bytes=traffic.total,
                step=number,
                **_told(step.origins),
            )
        )
    return nodes


def _statements(record: Record, steps: Sequence[Node]) -> list[Node]:
    owners = {name: node.step for node in steps for name in node.writes}
    for number, work in enumerate(record.schedule.works):
        if isinstance(work, Group):
            names = (local.name.removesuffix("_local") for local in work.locals)
            owners.update((name, number) for name in names if name not in owners)
    nodes: list[Node] = []
    readers: dict[str, int] = {}
    for statement in reversed(record.program.statements):
        origins = record.program.origins
        name = statement.outputs[0].name if statement.outputs else ""
        step = owners.get(name, readers.get(name, -1))
        if isinstance(statement, ComputedBuffer):
            loads = (
                value.buffer for value in postorder(_roots(statement)) if isinstance(value, Load)
            )
            node = Node(
                label=_label(origins.get(name, ()), type(statement.body).__name__.lower()),
                kind="kernel",
                reads=tuple(dict.fromkeys([*loads, *_base(statement)])),
                writes=tuple(buffer.name for buffer in statement.outputs),
                shape=shape_of(statement.outputs),
                kernel=steps[step].kernel if step >= 0 else "",
                step=step,
                **_told(origins.get(name, ())),
            )
        else:
            node = _row(statement, origins, step)
        readers.update((read, step) for read in node.reads if read not in readers)
        nodes.append(node)
    return nodes[::-1]


def _roots(statement: ComputedBuffer) -> tuple[Any, ...]:
    body = statement.body
    return (*body.indirect, body.value) if isinstance(body, Scatter) else (body.value,)


def _base(statement: ComputedBuffer) -> tuple[str, ...]:
    return (statement.body.base,) if isinstance(statement.body, Scatter) else ()


def _row(
    statement: Statement | RowStatement, origins: Mapping[str, tuple[Origin, ...]], step: int
) -> Node:
    """The node of what is no loop."""
    name = statement.outputs[0].name if statement.outputs else ""
    marks = _told(origins.get(name, ()))
    shape = shape_of(statement.outputs)
    writes = tuple(buffer.name for buffer in statement.outputs)
    match statement:
        case CallOperator(operator=operator):
            operands = (*statement.arguments, *(value for _, value in statement.keywords))
            reads = tuple(dict.fromkeys(operand_buffers(operands)))
            writes = (*writes, *statement.mutates)
            return Node(
                label=short_operator(operator),
                kind="library",
                reads=reads,
                writes=writes,
                shape=shape,
                step=step,
                **marks,
            )
        case CallSubprogram():
            reads = tuple(operand_buffers(statement.arguments))
            label = f"program {statement.name}"
        case CallUserKernel():
            reads, label = tuple(operand_buffers(statement.arguments)), f"kernel {statement.name}"
            writes = statement.mutates
        case CopyBack(target=target, source=source):
            reads, label = tuple(operand_buffers([source])), f"copy to {target}"
        case _:
            operands = getattr(statement, "arguments", ())
            reads, label = tuple(operand_buffers(operands)), getattr(statement, "name", "number")
    return Node(
        label=label, kind="number", reads=reads, writes=writes, shape=shape, step=step, **marks
    )


def shape_of(buffers: Sequence[Buffer]) -> str:
    """Type and sizes of the first buffer."""
    if not buffers:
        return ""
    layout = buffers[0].layout
    return f"{layout.dtype}[{', '.join(map(str, layout.size))}]"


def short_operator(operator: str) -> str:
    """`addmm` of `aten.addmm.default`."""
    _, name, *_ = [*operator.split("."), ""]
    return name.lstrip("_") or operator


def _label(origins: Sequence[Origin], otherwise: str) -> str:
    names = dict.fromkeys(short_operator(origin.operator) for origin in origins)
    return " ".join(names) or otherwise


def _told(origins: Sequence[Origin]) -> dict[str, Any]:
    """The fields of a node that say where it comes from."""
    operators = dict.fromkeys(short_operator(origin.operator) for origin in origins)
    lines = dict.fromkeys(
        shorten_paths(f"{origin.file}:{origin.line}") for origin in origins if origin.file
    )
    return {"operators": tuple(operators), "lines": tuple(lines)}
