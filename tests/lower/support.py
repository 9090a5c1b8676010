"""Lower a function and compare the reference evaluation of its program with eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fusewright.aot import trace_inference, with_results
from fusewright.aot.graph import AtenGraph
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.fake import FakeMode
from fusewright.ir.parse import parse_program
from fusewright.ir.program import CallOperator, ComputedBuffer, Program
from fusewright.ir.reference import evaluate
from fusewright.ir.text import print_program
from fusewright.ir.verify import verify_program
from fusewright.lower import lower
from tests.symbolic_inputs import SymbolicInputs

GPU = torch.device("cuda", 0)


def graph_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """(graph module of the one call, its tensors): each tensor among the arguments becomes an
    input.
    """
    graph = fx.Graph()
    tensors: list[torch.Tensor] = []
    places: dict[int, fx.Node] = {}

    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in places:
                places[id(value)] = graph.placeholder(f"x{len(tensors)}")
                tensors.append(value)
            return places[id(value)]
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            items = [place(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, slice):
            return slice(place(value.start), place(value.stop), place(value.step))
        return value

    arguments = tuple(place(value) for value in args)
    keywords = {name: place(value) for name, value in kwargs.items()}
    graph.output(graph.call_function(function, arguments, keywords))
    return fx.GraphModule(torch.nn.Module(), graph), tensors


@dataclass(frozen=True)
class Lowered:
    """A function lowered for example tensors, and the means to run it."""

    aten: AtenGraph
    program: Program
    tensors: list[torch.Tensor]
    """The inputs: of the traced module, in its order."""

    sizes: tuple[int, ...] = ()
    """Values of `program.sizes` for those tensors."""

    def run(self, *, float64: bool = False) -> Any:
        """What the program computes, in the structure of the function's own result."""
        sizes = {f.symbol.name: n for f, n in zip(self.program.sizes, self.sizes, strict=True)}

        def call(inputs: list[Any]) -> tuple[Any, ...]:
            return tuple(
                evaluate(
                    self.program,
                    inputs,
                    sizes=sizes,
                    constants=self.aten.constants,
                    float64=float64,
                )
            )

        return with_results(self.aten, call)(list(self.tensors))

    @property
    def externs(self) -> list[str]:
        return [s.operator for s in self.program.statements if isinstance(s, CallOperator)]

    @property
    def computed(self) -> int:
        """How many statements are loops."""
        return sum(isinstance(s, ComputedBuffer) for s in self.program.statements)


def lowered(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Lowered:
    """`function(*args, **kwargs)` traced, lowered and verified."""
    module, tensors = graph_of(function, args, kwargs)
    context = CompileContext(options=Options())
    aten = trace_inference(module, tensors, context)
    program = lower(aten, context)
    verify_program(program)
    return Lowered(aten, program, tensors)


def lowered_dynamic(
    function: Callable[..., Any],
    examples: tuple[torch.Tensor, ...],
    dynamic: dict[int, tuple[int, ...]],
    tensors: tuple[torch.Tensor, ...],
) -> Lowered:
    """`function` lowered for `examples` whose dimensions `dynamic` (by input) are symbolic, to be
    run on `tensors`.

    Dimensions with equal sizes get one symbol.
    """
    module, given = graph_of(function, examples, {})
    assert [id(t) for t in given] == [id(t) for t in examples], (
        "examples are to be different tensors"
    )
    inputs = SymbolicInputs.of(given, lambda number, dim: dim in dynamic.get(number, ()), duck=True)
    aten = trace_inference(module, inputs.fakes, CompileContext())
    program = lower(aten, CompileContext())
    verify_program(program)
    found = inputs.values(tensors)
    sizes = tuple(found[fact.symbol.name] for fact in program.sizes)
    return Lowered(aten, program, list(tensors), sizes)


def leaves(value: Any) -> list[Any]:
    """The tensors and numbers in a nested result."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


def assert_same(found: Any, wanted: Any, **tolerance: Any) -> None:
    """Equal values, types, sizes and strides, NaN equal to NaN."""
    found_leaves, wanted_leaves = leaves(found), leaves(wanted)
    assert len(found_leaves) == len(wanted_leaves)
    for a, b in zip(found_leaves, wanted_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        if b.numel():
            strides = zip(b.shape, a.stride(), b.stride(), strict=True)
            assert all(s == 1 or x == y for s, x, y in strides), (a.stride(), b.stride())


def check(
    function: Callable[..., Any], *args: Any, externs: int | None = 0, **kwargs: Any
) -> Lowered:
    """Lowering and evaluating gives what eager gives; with at most so many library calls (None: any
    number).
    """
    result = lowered(function, *args, **kwargs)
    if externs is not None:
        assert len(result.externs) <= externs, result.externs
    assert_same(result.run(), function(*args, **kwargs))
    return result


def program_on_gpu(
    function: Callable[..., Any], *tensors: torch.Tensor, is_dynamic: bool = False
) -> Program:
    """A function's program as on a GPU, moved to the CPU. `is_dynamic`: for any number of rows."""
    module, _ = graph_of(function, tensors, {})
    inputs = SymbolicInputs.of(tensors, lambda number, dim: is_dynamic and dim == 0, duck=True)
    mode = FakeMode(inputs.facts)
    metas = [
        torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        for fake in inputs.fakes
    ]
    fakes = [mode.wrap(meta, GPU) for meta in metas]
    context = CompileContext()
    program = lower(trace_inference(module, fakes, context), context)
    text = print_program(program)
    assert " on cuda:0" in text
    moved = parse_program(text.replace(" on cuda:0", ""))
    verify_program(moved)
    return moved
