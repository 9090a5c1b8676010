"""A call that is to be packaged: captured whole, and described as data: its parameters, what it is
made for, and how its results are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fusewright.aot import AtenGraph, specs
from fusewright.capture import Capture, NotCaptured, capture_call
from fusewright.capture.dynamic_shapes import DynamicShapes
from fusewright.capture.guards import ShapeGuard
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.sources import (
    AttributeSource,
    DictItemSource,
    ExtentSource,
    ItemSource,
    LocalSource,
    Source,
)
from fusewright.capture.trace import CALL_MODULE, root_call
from fusewright.compiled import original_of
from fusewright.config import Options
from fusewright.errors import Unsupported
from fusewright.exported import place_of, result_of
from fusewright.ir.index import Atom, Index, Symbol
from fusewright.ir.relations import Relation
from fusewright.packages.sizes import Number
from fusewright.packages.structure import CannotDescribe, Description, describe, names_of_leaves
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat.trees import flatten_tree, map_tree


class EntryPoint(NamedTuple):
    """A further function of a package, and a call of it."""

    target: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None


class PackagedCall:
    """A call that was captured whole."""

    def __init__(self, entry: EntryPoint, options: dict[str, Any]) -> None:
        self.target = original_of(entry.target)
        given = tuple(entry.args), dict(entry.kwargs or {})
        self._args, self._kwargs = map_tree(_own_tensor, given)
        function, arguments, keywords = root_call(self.target, self._args, self._kwargs)
        self.place = place_of(self.target, function)
        self._signature = self._read_signature()
        self._refuse_training(given)
        bound = inspect.signature(function).bind(*arguments, **keywords)
        bound.apply_defaults()
        self._locals = bound.arguments
        self.capture = self._captured(function, Options.from_user(options), entry.dynamic_shapes)
        self._shapes: ShapeGuard | None = None
        self.tensors = self._tensors_read()
        self._fakes = {id(value.object): value.fake for value in self.capture.machine.inputs}
        """By the identity of a tensor, what stands for it in the graph: its sizes are symbols."""

        self._parameters: list[tuple[inspect.Parameter, Description | None]] = []

    def _read_signature(self) -> inspect.Signature:
        """The parameters of the function, or of the module's `forward`."""
        module = self.target
        try:
            return inspect.signature(
                module.forward if isinstance(module, torch.nn.Module) else module
            )
        except ValueError:
            what = f"the parameters of {module!r}, which is written in C, have no names"
            raise Unsupported(what, None, "package a function that calls it") from None

    def _refuse_training(self, given: Any) -> None:
        module = getattr(self.target, "__self__", self.target)
        if isinstance(module, torch.nn.Module) and module.training:
            what = "a package does not train, and the module is in training mode"
            raise Unsupported(what, self.place, "call eval() of it first")
        leaves, _ = flatten_tree(given)
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
            what = "a package computes no gradients, and an argument requires them"
            raise Unsupported(what, self.place, "detach it")

    def _captured(
        self, function: Callable[..., Any], options: Options, dynamic_shapes: Any
    ) -> Capture:
        history = SizeHistory(False if dynamic_shapes is None else None, options.of_data)
        if dynamic_shapes is not None:
            is_module = function is CALL_MODULE
            module = self.target
            described = module.forward if isinstance(module, torch.nn.Module) else module
            history.dynamic_shapes = DynamicShapes.of(
                dynamic_shapes, described, is_module=is_module
            )
        try:
            capture = capture_call(function, self._locals, history=history)  # type: ignore[arg-type]
        except NotCaptured as failure:
            error = failure.error or Unsupported(f"the call raises {failure.raised}", self.place)
            raise (error if error.location is not None else error.at(self.place)) from None
        if capture.writes or capture.calls:
            what = "the call changes objects or modes of torch, which a package does not"
            raise Unsupported(what, self.place, "return what it makes instead")
        return capture

    def _tensors_read(self) -> list[torch.Tensor | None]:
        """The tensors that the graph is given in this call; None for sizes."""
        tensors = iter(self.capture.machine.inputs)
        return [
            None if isinstance(example, torch.SymInt) else next(tensors).object
            for example in self.capture.inputs
        ]

    def assume_no_more(self) -> None:
        """Take what was assumed of sizes so far, when the graph has been compiled."""
        self._shapes = self.capture.machine.sizes.close()
        self._parameters = self._described_parameters()

    # Arguments ------------------------------------------------------------------------------------

    def _described_parameters(self) -> list[tuple[inspect.Parameter, Description | None]]:
        """Each parameter of the target with the structure of its argument; None for one that no
        package holds, which may not be given later.
        """
        signature = self._signature
        bound = signature.bind(*self._args, **self._kwargs)
        passed = set(bound.arguments)
        bound.apply_defaults()
        self.leaves: list[torch.Tensor] = []
        parameters: list[tuple[inspect.Parameter, Description | None]] = []
        for name, parameter in signature.parameters.items():
            value = bound.arguments[name]
            try:
                structure: Description | None = describe(value, self._leaf, name)
            except CannotDescribe as error:
                if name in passed:
                    what = f"argument {error}, which no package holds"
                    raise Unsupported(what, self.place, "pass tensors and constants") from None
                structure = None
            parameters.append((parameter, structure))
        return parameters

    def _leaf(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        if any(value is leaf for leaf in self.leaves):
            what = "one tensor stands at two places among the arguments"
            raise Unsupported(what, self.place, "pass two, or pass it once")
        self.leaves.append(value)
        return len(self.leaves) - 1

    def _object(self, source: Source) -> Any:
        """The object at a place when the call began."""
        match source:
            case LocalSource(name=name):
                return self._locals[name]
            case ItemSource(origin=origin, index=key) | DictItemSource(origin=origin, key=key):
                return self._object(origin)[key]
            case AttributeSource(origin=origin, name=name):
                return getattr(self._object(origin), name)
        raise Unsupported(f"a size is read from {source}, which is no argument", self.place)

    def _number_of(self, value: Any) -> int:
        """The number of the leaf that an object is."""
        for number, leaf in enumerate(self.leaves):
            if leaf is value:
                return number
        raise Unsupported("a size is read from what is no argument", self.place)

    # Description ----------------------------------------------------------------------------------

    def described(self, graph: AtenGraph, weight: Callable[[Any], str]) -> dict[str, Any]:
        """The entry point as its manifest has it."""
        inputs = self._inputs(weight)
        parameters = [
            {"name": parameter.name, "kind": parameter.kind.name, "structure": structure}
            for parameter, structure in self._parameters
        ]
        return {
            "parameters": parameters,
            "leaves": [self._leaf_row(leaf) for leaf in self.leaves],
            "inputs": inputs,
            "frozen": [],
            "needs_python": "",
            "sizes": self._sizes(names_of_leaves(parameters)),
            **self._results(graph, inputs),
        }

    def _inputs(self, weight: Callable[[Any], str]) -> list[list[Any]]:
        """The inputs of the plan, in order: a weight, an argument's leaf, or a size by symbol."""
        inputs: list[list[Any]] = []
        positions = {id(leaf): number for number, leaf in enumerate(self.leaves)}
        for example, tensor in zip(self.capture.inputs, self.tensors, strict=True):
            if tensor is None:
                (symbol,) = index_of(example).free()
                inputs.append(["number", symbol.name])
            elif id(tensor) in positions:
                inputs.append(["leaf", positions[id(tensor)]])
            else:
                inputs.append(["weight", weight(tensor)])
        return inputs

    def _leaf_row(self, leaf: torch.Tensor) -> dict[str, Any]:
        open_dims: set[int] = set()
        open_strides: set[int] = set()
        for reading in self._shapes.readings if self._shapes else ():
            match reading.source:
                case ExtentSource(origin=origin, dim=dim, is_stride=is_stride):
                    if self._object(origin) is leaf:
                        (open_strides if is_stride else open_dims).add(dim)
        size = [None if dim in open_dims else n for dim, n in enumerate(leaf.shape)]
        stride = [None if dim in open_strides or open_dims else n
                  for dim, n in enumerate(leaf.stride())]  # fmt: skip
        return {
            "dtype": str(leaf.dtype).removeprefix("torch."),
            "device": str(leaf.device),
            "size": size,
            "stride": stride,
            "is_contiguous": leaf.is_contiguous(),
        }

    def _sizes(self, names: Mapping[int, str]) -> dict[str, Any] | None:
        if self._shapes is None:
            return None
        readings, places = [], {}
        for reading in self._shapes.readings:
            extent, symbol = reading.source, reading.symbol.name
            if not isinstance(extent, ExtentSource):
                what = f"{extent} is an integer that varies, which a package does not take"
                raise Unsupported(what, self.place, "say nothing of it in dynamic_shapes")
            leaf = self._number_of(self._object(extent.origin))
            readings.append([symbol, leaf, extent.dim, extent.is_stride])
            kind = "stride" if extent.is_stride else "size"
            places[symbol] = f"{names[leaf]}.{kind}({extent.dim})"
        return {"readings": readings, "relations": [*self._relations(places)]}

    def _relations(self, places: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        assert self._shapes is not None
        for assumption in self._shapes.relations:
            relation = assumption.relation
            if not isinstance(relation, Relation):
                raise Unsupported("a number that varies is no integer", self.place)
            named = {s: s.renamed(places[s.name]).index for s in relation.free()}
            words = str(Relation(relation.kind, relation.difference.substitute(named)))
            yield {
                "kind": relation.kind.value,
                "difference": index_data(relation.difference),
                "words": words,
            }

    def _results(self, graph: AtenGraph, inputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """How each result of the graph is made, and the structure of what the call returns."""
        recipes = [self._recipe(spec, inputs) for spec in graph.results]
        outputs = self.capture.graph_module.graph.output_node()
        values = outputs.meta["val"]
        recipe_numbers = {id(value): number for number, value in enumerate(values)}

        def leaf(value: Any) -> int | None:
            """The recipe of a part of the result; constants have none."""
            if id(value) not in recipe_numbers:
                recipe = self._recipe_of_given(value, inputs)
                if recipe is None:
                    return None
                recipe_numbers[id(value)] = len(recipes)
                recipes.append(recipe)
            return recipe_numbers[id(value)]

        try:
            structure = describe(self._result(values), leaf, "the result")
        except CannotDescribe as error:
            what = f"{error}, which no package returns"
            raise Unsupported(what, self.place, "return tensors and constants") from None
        return {"results": recipes, "structure": structure, "writes": _writes(graph, inputs)}

    def _result(self, values: Sequence[Any]) -> Any:
        """The result of the call, with stand-ins for tensors, so that sizes are symbols in it."""
        args, kwargs = map_tree(self._stand_in, (self._args, self._kwargs))
        return result_of(self.capture, tuple(values), self.target, args, kwargs)

    def _stand_in(self, value: Any) -> Any:
        return self._fakes.get(id(value), value)

    def _recipe_of_given(self, value: Any, inputs: Sequence[Sequence[Any]]) -> list[Any] | None:
        """The recipe of a size, or of a tensor that the call was given."""
        if isinstance(value, torch.SymInt):
            return ["size", index_data(index_of(value))]
        for number, leaf in enumerate(self.leaves):
            if value is leaf or value is self._stand_in(leaf):
                return ["leaf", number]
        for position, (kind, _) in enumerate(inputs):
            if kind == "weight" and value is self.tensors[position]:
                return ["weight", position]
        return None

    def _recipe(self, spec: specs.ResultSpec, inputs: Sequence[Sequence[Any]]) -> list[Any]:
        match spec:
            case specs.FromGraph(position=position):
                return ["output", position]
            case specs.FromInput(index=index):
                return _recipe_of_input(inputs, index)
            case specs.Repeated(index=index):
                return ["result", index]
            case specs.Detached(base=base):
                return self._recipe(base, inputs)
            case specs.KnownResult(value=value):
                return ["constant", describe(value, lambda part: None, "a result")]
            case specs.ViewOf(conjugate=False, negative=False):
                source = self._recipe(spec.base, inputs)
                size, stride = [*map(_extent, spec.size)], [*map(_extent, spec.stride)]
                dtype = str(spec.dtype).removeprefix("torch.")
                return ["view", source, size, stride, _extent(spec.offset), dtype]
        what = f"a result is made by {type(spec).__name__}, which no package does"
        raise Unsupported(what, self.place, "return a copy of it")


def _own_tensor(value: Any) -> Any:
    """A tensor of its own for each place among the arguments: a package is not made for one that
    stands at two of them, or is a weight as well.
    """
    return value.data if isinstance(value, torch.Tensor) else value


def _extent(number: int | specs.FromGraph) -> int | list[int]:
    """A number of a view; in a list, the position of the output that it is."""
    return [number.position] if isinstance(number, specs.FromGraph) else number


def _recipe_of_input(inputs: Sequence[Sequence[Any]], index: int) -> list[Any]:
    """The recipe of a tensor that the graph is given."""
    kind, number = inputs[index]
    return ["leaf", number] if kind == "leaf" else ["weight", index]


def _writes(graph: AtenGraph, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Tensors that the call was given and writes to, as a result's recipe names them; the output
    that is the new value; and whether autograd counts the write.
    """
    rows = []
    for output, index in enumerate(graph.mutated_inputs):
        is_noticed = index not in graph.unnoticed_inputs
        rows.append([*_recipe_of_input(inputs, index), output, is_noticed])
    return rows


def index_data(index: Index) -> Number:
    """An index expression as data: a sum of products."""
    products = [["*", coefficient, *map(_atom_data, atoms)] for coefficient, atoms in index.terms]
    return ["+", index.constant, *products] if products else index.constant


def _atom_data(atom: Atom) -> Number:
    if isinstance(atom, Symbol):
        return atom.name
    return [atom.operator, index_data(atom.left), index_data(atom.right)]
