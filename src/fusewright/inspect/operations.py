"""Floating-point operations of matrix products, of kernels and of library calls.

The most that a machine does of them a second depends on the type of the operands, which is thus
told with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeVar

from fusewright.ir.dtype import DType
from fusewright.ir.group import Group, Reduce
from fusewright.ir.index import LoopSymbol
from fusewright.ir.products import DOT, matrix_product
from fusewright.ir.program import Buffer, BufferReference, CallOperator, Layout, ViewReference
from fusewright.records import record
from fusewright.runtime.compiled import Record


@record(kw_only=True)
class Operations:
    """The work of one call of a matrix product."""

    count: float
    """Two for each pair of numbers that it multiplies."""

    dtype: DType
    """The type of its operands in memory."""


Place = tuple[tuple[str, ...], tuple[tuple[str, int], ...]]
"""An operator, and the first of the user's lines that it is for."""

Key = TypeVar("Key")


def operations_of_kernels(records: Iterable[Record]) -> dict[str, Operations]:
    """By kernel that holds matrix products, their operations in a launch, on average."""
    totals: dict[str, list[Operations]] = {}
    for graph_record in records:
        groups = (work for work in graph_record.schedule.works if isinstance(work, Group))
        for group, launch in zip(groups, graph_record.launches, strict=True):
            operations = operations_of_group(group, graph_record.program.hints)
            if operations is not None:
                totals.setdefault(launch.kernel, []).append(operations)
    return _averages(totals)


def operations_of_lines(records: Iterable[Record]) -> dict[Place, Operations]:
    """By line, the operations of a library call of a matrix product, on average."""
    totals: dict[Place, list[Operations]] = {}
    for graph_record in records:
        program = graph_record.program
        buffers, hints = program.buffers(), program.hints
        for statement in program.statements:
            if not isinstance(statement, CallOperator) or not statement.outputs:
                continue
            operations = operations_of_call(statement, buffers, hints)
            origins = program.origins.get(statement.outputs[0].name, ())
            if operations is not None and origins:
                first = origins[0]
                places = ((first.file, first.line),) if first.file else ()
                totals.setdefault(((first.operator,), places), []).append(operations)
    return _averages(totals)


def _averages(totals: Mapping[Key, Sequence[Operations]]) -> dict[Key, Operations]:
    return {
        key: Operations(
            count=sum(operations.count for operations in calls) / len(calls), dtype=calls[0].dtype
        )
        for key, calls in totals.items()
    }


def operations_of_group(group: Group, hints: Mapping[str, int | float]) -> Operations | None:
    """The work of the matrix products of a group; None where it holds none."""

    def points(loops: Sequence[LoopSymbol]) -> int:
        return prod(loop.extent.evaluate(hints) for loop in loops)

    products = [
        (2 * points((*group.outer, *stage.inner)), action.value.dtype)
        for stage in group.stages
        for action in stage.actions
        if isinstance(action, Reduce) and action.kind == DOT
    ]
    if not products:
        return None
    product = matrix_product(group)
    stored = product.factors[0].dtype if product is not None else products[0][1]
    return Operations(count=sum(count for count, _ in products), dtype=stored)


def operations_of_call(
    call: CallOperator, buffers: Mapping[str, Buffer], hints: Mapping[str, int | float]
) -> Operations | None:
    """The work of a matrix product of the library; None for other operators, and for integers."""
    rule = _PRODUCTS.get(call.operator.split(".")[1])
    layout = call.outputs[0].layout
    if rule is None or not layout.dtype.is_float:
        return None
    sizes = [_sizes(operand, buffers, hints) for operand in call.arguments]
    output = [size.evaluate(hints) for size in layout.size]
    try:
        return Operations(count=rule(sizes, output), dtype=layout.dtype)
    except (IndexError, TypeError):
        return None


def _sizes(
    operand: Any, buffers: Mapping[str, Buffer], hints: Mapping[str, int | float]
) -> list[int]:
    match operand:
        case BufferReference(name=name) if name in buffers:
            layout: Layout = buffers[name].layout
        case ViewReference(layout=layout):
            pass
        case _:
            return []
    return [size.evaluate(hints) for size in layout.size]


def _attention(sizes: list[list[int]], output: list[int]) -> int:
    query, key = sizes[0], sizes[1]
    return 4 * prod(query) * key[-2]


_PRODUCTS: Final[dict[str, Callable[[list[list[int]], list[int]], int]]] = {
    "mm": lambda sizes, output: 2 * prod(sizes[0]) * sizes[1][-1],
    "bmm": lambda sizes, output: 2 * prod(sizes[0]) * sizes[1][-1],
    "addmm": lambda sizes, output: 2 * prod(sizes[1]) * sizes[2][-1],
    "baddbmm": lambda sizes, output: 2 * prod(sizes[1]) * sizes[2][-1],
    "convolution": lambda sizes, output: 2 * prod(output) * prod(sizes[1][1:]),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
}
"""By operator: operations, of the sizes of its arguments and of its result."""
