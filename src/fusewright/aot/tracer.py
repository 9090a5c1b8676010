"""Runs a captured graph on fake tensors and records each ATen operator that it amounts to as a
graph node.

    linear = torch.nn.functional.linear(x, w, b)      (captured)
 ->
    t = aten.t(w); addmm = aten.addmm(b, x, t)        (traced)

The recorder is a dispatch mode: what reaches it has passed autocast and the dispatcher's own
decompositions. Operators in the table of decompositions are replaced as they are met, so that each
operator is recorded once. An operator that writes to an argument is recorded as its functional form
and one `copy_`; `copy_` is thus the only writing operator in a traced graph, which keeps the
functionaliser small.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import fx

from fusewright import own_operators, torch_compat
from fusewright.aot.custom_operators import functional_twin, refuse_unusual
from fusewright.aot.full_masks import ATTENTION, without_full_mask
from fusewright.aot.graph import UNNOTICED, TracedProgram
from fusewright.aot.leaves import all_as_leaves
from fusewright.aot.mutations import bernoulli, functional_form, has_sizes_of, rebinding_view
from fusewright.aot.origins import origin_of
from fusewright.aot.repeated_elements import WRITES_BY_INDEX, shown_once
from fusewright.aot.specs import GeometryChange, Leaf
from fusewright.aot.symbols import SymbolNodes, promise, takes_reals, with_known_reals
from fusewright.containers import tensors
from fusewright.errors import FusewrightError, Location, Unsupported, UnsupportedOperator
from fusewright.fake import FakeMode, FakeTensor
from fusewright.fake.arguments import numbered
from fusewright.fake.handlers import shows_repeated, take_geometry
from fusewright.fake.tensor import set_node
from fusewright.fake_rules import UNKNOWN_RULES
from fusewright.fake_rules.arguments import flat
from fusewright.fake_rules.geometry import same_sizes
from fusewright.formulas import Formula, When, apply_to_each, formulas, is_foreach
from fusewright.interrupts import INTERRUPTS
from fusewright.modes import Modes, restore
from fusewright.opaque import BUFFERS, Opaque
from fusewright.operators import OperatorKind, facts
from fusewright.symbolic.nodes import SYMBOLIC
from fusewright.torch_compat import OpOverload, TorchDispatchMode
from fusewright.user_kernels import UserKernelCall, UserKernelOnCopies

aten = torch.ops.aten

RECORDED_WHOLE: dict[Any, Callable[[Recorder, Any, Sequence[Any]], Any]] = {}
"""By target of a captured call, or its class, or by operator in a graph with gradients: what
records it, given the target and the arguments, in place of running it.
"""

DATA_DEPENDENT = frozenset({aten._local_scalar_dense.default, *UNKNOWN_RULES})
"""Operators whose results may have sizes, or be numbers, that depend on data."""


class Recorder(TorchDispatchMode):
    """Records operators on fakes into `graph`; one a trace."""

    def __init__(
        self, fakes: FakeMode, decompositions: Mapping[Any, Formula], *, verify: bool = False
    ) -> None:
        super().__init__()
        self.fakes = fakes
        self.verify = verify
        """Whether graphs of functions that the program gives to loops are verified."""

        self.graph = fx.Graph()
        self.symbols = SymbolNodes(self.graph)
        self.constants: dict[str, torch.Tensor] = {}
        self.has_mutations = False
        self.input_indices: dict[int, int] = {}
        """The numbers of the program's inputs, by the identity of their fakes."""

        self.geometry_changes: list[GeometryChange] = []
        self.origin: dict[str, Any] = {}
        """`meta` entries of the nodes recorded next: location, stack_trace, module_path."""

        self.differentiates = False
        """Whether the program asks for gradients itself."""

        self.follows_autograd = False
        """Whether operators that the autograd engine calls get the origin of the operator that they
        differentiate.
        """

        self._is_recording = False
        """Whether the operator that comes next is part of another."""

        self._origins: dict[int, dict[str, Any]] = {}
        """By sequence number of an autograd node: the origin of the operator that made it."""

        self.decompositions = {**formulas(When.EVERYWHERE), **decompositions}
        self._decomposing: set[Any] = set()
        """Operators whose decompositions are running: those call the operator as it is."""

        self._nodes: dict[int, fx.Node | tuple[fx.Node, int]] = {}
        self._alive: list[Any] = []
        self._constant_nodes: dict[int, fx.Node] = {}

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.follows_autograd:
            return self.record(op, args, kwargs or {})
        in_backward = self._follow_autograd()
        before = self._is_recording, self.fakes.asks_eager
        self._is_recording, self.fakes.asks_eager = True, in_backward and not before[0]
        try:
            return self.record(op, args, kwargs or {})
        finally:
            self._is_recording, self.fakes.asks_eager = before

    def _follow_autograd(self) -> bool:
        """Let what is recorded next have its origin. Whether the engine calls it."""
        number = torch_compat.autograd.running_backward_number()
        if number is None:
            self._origins.setdefault(torch_compat.autograd.latest_autograd_number(), self.origin)
        else:
            self.origin = self._origins.get(number, {})
        return number is not None

    def record(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `op` on fakes, note it in the graph, give the fake results."""
        if not isinstance(op, OpOverload):
            raise UnsupportedOperator(f"{op} cannot be traced yet")
        kind = facts(op).kind
        if op.namespace == "prim" or kind is OperatorKind.GEOMETRY:  # asks for a field of a fake
            return self.fakes.dispatch(op, args, kwargs)
        if kwargs.get("device") is not None:  # Backward may run where another GPU is current.
            kwargs = {**kwargs, "device": numbered(kwargs["device"])}
        result = self._recorded_for_gradients(op, args, kwargs)
        if result is not NotImplemented:
            return result
        result = self._decomposed(op, args, kwargs)
        if result is not NotImplemented:
            return result
        if kind is OperatorKind.ITSELF:
            return self._record_no_operation(op, args)
        if kind is OperatorKind.LITERAL:
            return self._record_constant(self.fakes.dispatch(op, args, kwargs), args[0])
        if torch_compat.written_arguments(op):
            return self._record_write(op, args, kwargs)
        result = self._taken_apart(op, args, kwargs)
        if result is not NotImplemented:
            return result
        result = self.fakes.dispatch(op, args, kwargs)
        if isinstance(result, torch.SymInt) and op is aten._local_scalar_dense.default:
            self.record_call(op, args, kwargs, result)
            return result
        if not isinstance(result, (torch.Tensor, tuple, list)):
            acts = op.namespace == own_operators.NAMESPACE
            acts = acts or any(isinstance(value, torch.Tensor) for value in args)
            if acts and torch_compat.has_effect(op):
                self.record_call(op, args, kwargs, result)
            return result
        if isinstance(result, torch.Tensor) and is_same_view(op, args, result):
            self.bind(result, self.argument(args[0]))
            return result
        self.record_call(op, args, kwargs, result)
        return result

    def _recorded_for_gradients(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of an operator that is recorded otherwise where it has a gradient or computes
        one; NotImplemented of others.
        """
        if op in RECORDED_WHOLE and (self.follows_autograd or self.differentiates):
            return RECORDED_WHOLE[op](self, op, args)
        in_backward = formulas(When.BACKWARD).get(op) if self.follows_autograd else None
        if in_backward is None:
            return NotImplemented
        with self:
            return in_backward(*args, **kwargs)

    def _decomposed(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result by an operator's decomposition; NotImplemented where none applies."""
        decomposition = self.decompositions.get(op)
        if decomposition is None or op in self._decomposing:
            return NotImplemented
        self._decomposing.add(op)
        try:
            with self, self.fakes.asking_for_layout():
                return decomposition(*args, **kwargs)
        finally:
            self._decomposing.discard(op)

    def _taken_apart(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that is made of others; NotImplemented for one that is not."""
        if torch_compat.is_composite(op):
            with self:
                return torch_compat.decompose(op, args, kwargs)
        if is_foreach(op):
            with self:
                return apply_to_each(op, args, kwargs)
        return NotImplemented

    def record_call(self, op: Any, args: Any, kwargs: Any, result: Any) -> fx.Node:
        """Note a call with fakes as arguments, and that it gave the fakes `result`."""
        is_operator = isinstance(op, OpOverload)
        if self.fakes.facts is not None and is_operator and not takes_reals(op):
            args, kwargs = with_known_reals(args), with_known_reals(kwargs)
        node = self.graph.create_node(
            "call_function",
            op,
            self.argument(args),
            self.argument(kwargs),
            name=getattr(op, "overloadpacket", op).__name__,
        )
        node.meta.update(self.origin, val=result)
        match result:
            case torch.Tensor():
                self.bind(result, node)
            case tuple() | list():
                for index, part in enumerate(result):
                    self.bind(part, (node, index))
        if op in DATA_DEPENDENT:
            self._define_sizes(result, node)
        return node

    def _define_sizes(self, result: Any, node: fx.Node) -> None:
        """Note that sizes which depend on data are those of the results of `node`, or `node`."""
        if not isinstance(result, (tuple, list)):
            self.symbols.define(result, node)
            return
        for part in result:
            if any(isinstance(size, torch.SymInt) for size in part.shape):
                self.symbols.define(part, self._node_of(part))

    def _record_no_operation(self, op: Any, args: tuple[Any, ...]) -> Any:
        result = self.fakes.dispatch(op, args, {})
        self.bind(result, self.argument(args[0]))
        return result

    def _record_constant(self, fake: Any, value: torch.Tensor) -> Any:
        """A tensor made of literals: a filled one where a single number tells it all, else a
        constant of the graph.
        """
        if id(value) in self._nodes:  # lifted already: torch lifts again what it copies
            self.bind(fake, self.argument(value))
        elif value.numel() == 1 and not value.dtype.is_complex and value.device.type != "meta":
            number = value.item()
            options = {"dtype": value.dtype, "device": value.device}
            self.record_call(aten.full.default, (list(value.shape), number), options, fake)
        else:
            self.bind(fake, self._constant_node(value, fake))
        return fake

    def _record_write(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a writing operator as its functional form and a copy into each argument written
        to.
        """
        if op is aten.copy_.default:
            return self._record_copy(args[0], args[1])
        if op is aten.bernoulli_.float:
            with self:
                drawn = bernoulli(*args, **kwargs)
            return self._record_copy(args[0], drawn)
        if op in WRITES_BY_INDEX and shows_repeated(args[0]):
            with self:
                value = WRITES_BY_INDEX[op](*args, **kwargs)
                self._record_copy(shown_once(args[0]), value)
            return args[0]
        view = rebinding_view(op)
        if view is not None:
            return self._record_rebinding(op, view, args, kwargs)
        form = functional_form(op)
        if form is None:
            return self._record_unknown_write(op, args, kwargs)
        targets, rest_args, rest_kwargs = form.split(args, kwargs)
        with self:
            values = form.operator(*rest_args, **rest_kwargs)
        if len(torch_compat.operator_returns(form.operator)) == 1:
            values = (values,)
        for target, value in zip(targets, values[-len(targets) :], strict=True):
            many = isinstance(target, (list, tuple))
            for tensor, its_value in zip(target, value, strict=True) if many else [(target, value)]:
                if form.keeps_written or has_sizes_of(tensor, its_value):
                    self._record_copy(tensor, its_value)
                else:
                    self._record_resize(tensor, its_value)
        results = (*values[: len(values) - len(targets)], *targets)
        match len(torch_compat.operator_returns(op)):
            case 0:
                return None
            case 1:
                return results[0]
            case count:
                return results[:count]

    def _record_unknown_write(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an operator that writes to its arguments and has no functional form: by one that
        is made for it.
        """
        twin = functional_twin(op)
        if twin is None:
            if not torch_compat.is_composite(op):
                raise UnsupportedOperator(
                    f"{op} writes to its arguments and has no functional form"
                )
            with self:
                return torch_compat.decompose(op, args, kwargs)
        targets = twin.targets(args, kwargs)
        tracks_gradients = self.follows_autograd or self.differentiates
        refuse_unusual(op, targets, args, kwargs, tracks_gradients)
        with self:
            values = twin.operator(*args, **kwargs)
        count = len(values) - len(targets)
        for target, value in zip(targets, values[count:], strict=True):
            self._record_copy(target, value)
        return twin.result(op, args, kwargs, values[:count])

    def note_user_kernel(self, call: UserKernelCall, operands: Sequence[Any]) -> None:
        """Record a launch of the program's own kernel, as a call on copies, and a copy of each into
        the tensor that is written to. Autograd is not told, as it is not in eager.
        """
        if any(torch_compat.unwrapped(tensor) is not tensor for tensor in tensors(operands)):
            raise UnsupportedOperator(f"{call} inside of a transform of torch.func")
        results = tuple([self._like(operands[number]) for number in call.written])
        target = UserKernelOnCopies(call, [self._like(operand) for operand in operands])
        self.record_call(target, tuple(operands), {}, results)
        for number, value in zip(call.written, results, strict=True):
            self._record_copy(operands[number], value, is_noticed=False)

    def _like(self, tensor: Any) -> Any:
        """A fake of its own that lies as a tensor does, and is no part of the program."""
        if not isinstance(tensor, torch.Tensor):
            return None
        kind = {"dtype": tensor.dtype, "device": tensor.device}
        extents = tensor.shape, tensor.stride()
        return self.fakes.dispatch(aten.empty_strided.default, extents, kind)

    def _record_copy(self, target: Any, value: torch.Tensor, *, is_noticed: bool = True) -> Any:
        if not shows_repeated(target):  # a fill, say, may write to such a tensor, a copy may not
            self.fakes.dispatch(aten.copy_.default, (target, value), {})
        node = self.graph.create_node(
            "call_function", aten.copy_.default, (self.argument(target), self.argument(value))
        )
        node.meta.update(self.origin, val=target)
        unnoticed = any(facts(op).writes_unnoticed for op in self._decomposing)
        node.meta[UNNOTICED] = unnoticed or not is_noticed
        self.has_mutations = True
        return target

    def _record_resize(self, target: FakeTensor, value: FakeTensor) -> None:
        """From here on, the `out=` argument `target`, which had no elements, stands for a result of
        other sizes.
        """
        node = self.argument(target)
        is_fresh = node.op == "call_function" and not torch_compat.is_view_operator(node.target)
        if not is_fresh or target.numel() != 0:
            raise UnsupportedOperator("an `out=` argument that would be resized")
        if value.dtype != target.dtype:
            with self:
                value = aten._to_copy.default(value, dtype=target.dtype)
        take_geometry(target, value.meta_tensor)
        self.bind(target, self.argument(value))

    def _record_rebinding(self, op: Any, view: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """`x.t_()`: from here on, the fake of `x` stands for a view of what it stood for."""
        before = self.argument(args[0])
        index = self.input_indices.get(id(args[0]))
        if index is not None:
            self._change_input(index, op, args)
        elif before.op == "placeholder" and before.meta["val"] is args[0]:
            raise UnsupportedOperator(f"{op} changes the sizes of an input of the graph")
        self._keep_geometry(before, self.fakes.dispatch(aten.detach.default, (args[0],), {}))
        result = self.fakes.dispatch(op, args, kwargs)
        node = self.graph.create_node(
            "call_function", view, (before, *self.argument(args[1:])), self.argument(kwargs)
        )
        node.meta.update(self.origin, val=result)
        self.bind(result, node)
        return result

    def _change_input(self, index: int, op: Any, args: tuple[Any, ...]) -> None:
        """Note that the program changes the sizes of an input itself, whose history stays."""
        plain = all(type(number) is int for number in flat(args[1:]))
        moves = op is aten.as_strided_.default  # it may begin elsewhere, where views of it do not
        has_bits = args[0].is_conj() or args[0].is_neg()
        if args[0].requires_grad or has_bits or moves or not plain:
            raise UnsupportedOperator(f"{op} changes the sizes of an input of the graph")
        self.geometry_changes.append(GeometryChange(index, op, args[1:]))

    def _keep_geometry(self, node: fx.Node, fake: torch.Tensor) -> None:
        """Let a node be told by `fake`, since the fake that it had is about to change."""
        node.meta["val"] = fake
        if node.target is operator.getitem:
            producer, position = node.args
            results = list(producer.meta["val"])  # type: ignore[union-attr]
            results[position] = fake  # type: ignore[index]
            producer.meta["val"] = tuple(results)  # type: ignore[union-attr]

    def record_math_bits(self, value: torch.Tensor, node: fx.Node) -> bool:
        """Where an input has its conjugate or negative bit set, let its placeholder stand for the
        memory, and the input for a view of that. Whether that was so.
        """
        plain = value
        flips = [aten._conj.default] if value.is_conj() else []
        flips += [aten._neg_view.default] if value.is_neg() else []
        for flip in flips:
            plain = self.fakes.dispatch(flip, (plain,), {})
        self.bind(plain, node)
        node.meta["val"] = plain
        for flip in flips:
            plain = self.record(flip, (plain,), {})
        self.bind(value, self.argument(plain))
        return bool(flips)

    # -- values and nodes -------------------------------------------------------------------------

    def bind(self, value: Any, node: fx.Node | tuple[fx.Node, int]) -> None:
        """From here on `value` stands for `node` (or for one result of it)."""
        if isinstance(value, BUFFERS):
            self._nodes[id(value)] = node
            self._alive.append(value)
            set_node(value, node[0] if isinstance(node, tuple) else node)

    def argument(self, value: Any) -> Any:
        """`value` as a node's argument: fakes and symbolic numbers become nodes, lists and dicts
        are mapped.
        """
        match value:
            case torch.Tensor() | Opaque():
                return self._node_of(value)
            case tuple():
                return tuple([self.argument(item) for item in value])
            case list():
                return [self.argument(item) for item in value]
            case dict():
                return {name: self.argument(item) for name, item in value.items()}
            case _ if isinstance(value, SYMBOLIC):
                return self.symbols.node_for(value)
            case _:
                return value

    def _node_of(self, value: torch.Tensor | Opaque) -> fx.Node:
        node = self._nodes.get(id(value))
        if isinstance(node, tuple):
            producer, index = node
            node = self.graph.call_function(operator.getitem, (producer, index))
            node.meta.update(producer.meta, val=value)
            self.bind(value, node)
        if node is None:
            assert isinstance(value, torch.Tensor), "an opaque value is made by a recorded call"
            fake = self.fakes.fake(value)
            node = self._nodes.get(id(fake)) or self._constant_node(value, fake)
        return node  # type: ignore[return-value]

    def _constant_node(self, tensor: torch.Tensor, fake: torch.Tensor) -> fx.Node:
        """The node of a real tensor that the program holds on to: a `get_attr`."""
        existing = self._constant_nodes.get(id(tensor))
        if existing is not None:
            return existing
        if tensor.is_conj() or tensor.is_neg():
            raise UnsupportedOperator("a constant tensor whose conjugate or negative bit is set")
        name = f"constant{len(self.constants)}"
        self.constants[name] = tensor
        node = self.graph.create_node("get_attr", name, name=name)
        node.meta.update(self.origin, val=fake)
        self._constant_nodes[id(tensor)] = node
        self.bind(fake, node)
        return node


def is_same_view(op: Any, args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """True for a view that changes nothing: `expand` to the same size, a slice of everything."""
    if not torch_compat.is_view_operator(op):
        return False
    source = args[0]
    return (
        isinstance(source, torch.Tensor)
        and source.dtype == result.dtype
        and source.device == result.device
        and same_sizes(source.shape, result.shape)
        and same_sizes(source.stride(), result.stride())
        and op is not aten.view.dtype
        and (source.is_conj(), source.is_neg()) == (result.is_conj(), result.is_neg())
        and same_sizes((source.storage_offset(),), (result.storage_offset(),))
    )


# -- running the captured graph -------------------------------------------------------------------


def trace(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    fakes: FakeMode,
    decompositions: Mapping[Any, Formula],
    *,
    verify: bool = False,
) -> TracedProgram:
    """Run `module` on `inputs` (fakes, numbers, symbolic numbers: one for each placeholder) and
    record it.

    An operator that cannot be traced raises `Unsupported`, which names the user's line; exceptions
    of torch itself (sizes that do not fit) come through as they are, with the line added as a note.
    """
    recorder = Recorder(fakes, decompositions, verify=verify)
    with_bits = record_inputs(recorder, module, inputs)
    if asks_for_gradients(module):
        result = run_module(recorder, module, inputs)
    else:
        with torch.no_grad():
            result = run_module(recorder, module, inputs, SKIPPED_IN_INFERENCE)
    return traced_program(recorder, result, with_bits)


def asks_for_gradients(module: fx.GraphModule) -> bool:
    """Whether a captured graph calls the autograd engine."""
    return bool(module.graph.find_nodes(op="call_function", target=torch.autograd.grad))


def run_module(
    recorder: Recorder, module: fx.GraphModule, inputs: Sequence[Any], skipped: Container[Any] = ()
) -> Any:
    """Run `module` with each operator recorded, in the grad mode of the caller; gives its result.

    Calls of the functions `skipped` are left out.
    """
    environment = dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True))
    recorder.differentiates = asks_for_gradients(module)
    result: Any = None
    grad_enabled, before = torch.is_grad_enabled(), Modes.now()
    try:
        # The engine, which the program may call, would run on threads without the recorder.
        with recorder, torch.autograd.set_multithreading_enabled(False):
            for node in module.graph.nodes:
                if INTERRUPTS.is_pending:
                    INTERRUPTS.deliver()
                if node.op == "placeholder" or node.target in skipped:
                    continue
                if node.op == "output":
                    result = _lookup(environment, node.args[0])
                    continue
                recorder.origin = origin_of(node)
                environment[node] = _run_node(recorder, module, node, environment)
    except BaseException:  # The program ended inside a mode that it had begun.
        restore(before)
        raise
    finally:
        torch.set_grad_enabled(grad_enabled)
    recorder.origin = {}
    return result


def traced_program(
    recorder: Recorder, result: Any, inputs_with_bits: tuple[int, ...]
) -> TracedProgram:
    """The program that `recorder` has noted, which gives `result`."""
    leaves: list[Any] = []
    structure = all_as_leaves(result, leaves)
    nodes = [recorder.argument(leaf) for leaf in leaves]
    flat = isinstance(structure, tuple) and all(isinstance(entry, Leaf) for entry in structure)
    return TracedProgram(
        graph=recorder.graph,
        constants=recorder.constants,
        results=nodes,
        values=leaves,
        structure=None if flat else structure,
        symbols=recorder.symbols,
        has_mutations=recorder.has_mutations,
        geometry_changes=tuple(recorder.geometry_changes),
        inputs_with_bits=inputs_with_bits,
    )


def record_inputs(
    recorder: Recorder, module: fx.GraphModule, inputs: Sequence[Any]
) -> tuple[int, ...]:
    """Make the placeholders; gives the indices of those that stand for their inputs' memory without
    the conjugate or negative bit.
    """
    sources = list(module.graph.find_nodes(op="placeholder"))
    if len(sources) != len(inputs):
        raise FusewrightError(f"the graph has {len(sources)} inputs but was given {len(inputs)}")
    placeholders = []
    for source, value in zip(sources, inputs, strict=True):
        node = recorder.graph.create_node("placeholder", source.target, name=source.name)
        node.meta.update(origin_of(source), val=value)
        placeholders.append(node)
        recorder.bind(value, node)
        recorder.symbols.define(value, node)
    recorder.input_indices = tensor_indices(inputs)
    return tuple(
        index
        for index, (value, node) in enumerate(zip(inputs, placeholders, strict=True))
        if isinstance(value, torch.Tensor) and recorder.record_math_bits(value, node)
    )


def tensor_indices(inputs: Sequence[Any]) -> dict[int, int]:
    """By identity of the tensors among the inputs: their places."""
    return {
        id(value): index for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)
    }


SKIPPED_IN_INFERENCE = frozenset({torch_compat.set_grad_enabled})
"""Functions in captured graphs that mean nothing in inference."""


def _run_node(
    recorder: Recorder, module: fx.GraphModule, node: fx.Node, environment: dict[fx.Node, Any]
) -> Any:
    if node.op == "get_attr":
        return _attribute(module, node.target)
    args = _lookup(environment, node.args)
    kwargs = _lookup(environment, node.kwargs)
    with located_errors(recorder, node.target):
        match node.op:
            case "call_function":
                target: Any = node.target
                if target is torch_compat.check and isinstance(args[0], torch.SymBool):
                    return promise(recorder.record_call, recorder.symbols, args[0])
                whole = RECORDED_WHOLE.get(type(target)) or RECORDED_WHOLE.get(target)
                if whole is not None and isinstance(target, FunctionType):
                    args, kwargs = _in_order(target, args, kwargs), {}
                if whole is not None and not kwargs:
                    return whole(recorder, target, args)
                if target is ATTENTION:
                    draws_freely = (
                        formulas(When.FREE_DRAWS).keys() <= recorder.decompositions.keys()
                    )
                    args, kwargs = without_full_mask(
                        args, kwargs, recorder.argument, draws_freely=draws_freely
                    )
                return recorder.fakes.call(target, args, kwargs)
            case "call_method":
                method = getattr(args[0], str(node.target))
                return recorder.fakes.call(method, args[1:], kwargs)
            case "call_module":
                submodule = module.get_submodule(str(node.target))
                return recorder.fakes.call(submodule, args, kwargs)
    raise FusewrightError(f"a captured graph cannot contain a node of kind {node.op!r}")


def _in_order(function: FunctionType, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """All arguments of a call of a function in Python by their positions."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


@contextmanager
def located_errors(recorder: Recorder, what: Any) -> Iterator[None]:
    """Let what cannot be traced be an `Unsupported` that names the line of the operator that is
    recorded; other exceptions, of `what`, get the line as a note.
    """
    try:
        yield
    except Unsupported:
        raise
    except FusewrightError as error:
        raise Unsupported(str(error), recorder.origin.get("location")) from error
    except Exception as error:
        location: Location | None = recorder.origin.get("location")
        if torch_compat.is_read_of_fake(error):
            name = getattr(what, "__name__", what)
            raise Unsupported(f"{name} reads the values of a tensor", location) from error
        if location is not None:
            error.add_note(f"while tracing {what} at {location}")
        raise


def _attribute(module: fx.GraphModule, target: Any) -> Any:
    value: Any = module
    for name in str(target).split("."):
        value = getattr(value, name)
    return value


def _lookup(environment: dict[fx.Node, Any], value: Any) -> Any:
    return fx.node.map_arg(value, environment.__getitem__)
