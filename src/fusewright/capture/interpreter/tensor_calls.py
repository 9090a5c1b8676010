"""Calls that go into the graph, and what methods and attributes of tensors mean instead of that."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.graph import FAKE_FAILURES, contains_tensor, is_custom_operator
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import DECLINED, meaning_of
from fusewright.capture.interpreter.handler_calls import call_handler
from fusewright.capture.memory import (
    RESTRIDING,
    is_dense,
    restrided_bytes,
    shown_bytes,
)
from fusewright.capture.sources import AttributeSource, ConstantSource
from fusewright.capture.values.base import MISSING, Machine, NotConstant, TracedError, Value
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import NONE, NUMPY_SCALARS, ConstantValue
from fusewright.capture.values.functions import BuiltinValue, function_name
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.numbers import SymbolicValue, is_of_data
from fusewright.capture.values.sequences import ListValue, SliceValue, TupleValue
from fusewright.capture.values.tensors import GraphObjectValue, TensorValue, UnknownValue
from fusewright.errors import FusewrightError, Unsupported
from fusewright.fake import holds_integers, known_value
from fusewright.fake.graph_writes import storages_of
from fusewright.fake_rules.arguments import flat
from fusewright.symbolic.facts import Required
from fusewright.symbolic.nodes import SYMBOLIC

READS_VALUE: Final = frozenset(
    {
        "item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__complex__",
        "__contains__", "__format__", "is_nonzero",
    }
)  # fmt: skip
"""Tensor methods that read the data into Python: possible for a constant tensor alone."""

READS_INTEGER: Final = frozenset({"item", "__int__", "__index__"})
"""Methods whose result may be a symbol, where sizes may depend on data."""

MOST_SYMBOLS: Final = 64
"""The numbers in the largest tensor whose `tolist()` may give symbols."""

READS_MEMORY: Final = frozenset(
    {
        "numpy", "__array__", "__repr__", "__str__", "__dlpack__", "data_ptr", "untyped_storage",
        "storage", "apply_", "map_", "is_set_to", "__deepcopy__", "__reduce_ex__", "__hash__",
        "share_memory_", "module_load", "is_shared", "is_pinned", "storage_offset", "_is_view",
    }
)  # fmt: skip
"""Tensor methods that need the very tensor: its memory, its identity, its text."""

NEEDS_AUTOGRAD: Final = frozenset(
    {"backward", "register_hook", "retain_grad", "register_post_accumulate_grad_hook"}
)
"""Tensor methods that speak to the autograd engine."""

METADATA_METHODS: Final = frozenset(
    {
        "size", "dim", "ndimension", "stride", "numel", "nelement", "is_contiguous", "__len__",
        "is_floating_point", "is_complex", "element_size", "get_device",
        "is_signed", "is_conj", "is_neg", "is_same_size", "dense_dim", "dim_order",
    }
)  # fmt: skip
"""Tensor methods that read metadata alone."""

RETURNS_SELF: Final = frozenset(
    {"contiguous", "to", "float", "double", "half", "bfloat16", "type", "type_as"}
    | {torch.nn.functional.dropout, torch.dropout}
)
"""Methods and functions that may return their argument itself, and then do nothing."""

VIEWS_OR_COPIES: Final = frozenset(
    {"contiguous", "flatten", "ravel", "reshape", "reshape_as", "to"}
)
"""Functions and methods that give a view of a tensor where its layout allows one, else a copy."""


def call_graph(
    machine: Machine, function: Any, arguments: Sequence[Value], keywords: dict[str, Value]
) -> Value:
    """Put a call in the graph. Raises NotConstant for an argument that a graph cannot hold."""
    machine.read_all(arguments)
    machine.read_all(keywords.values())
    try:
        fake_arguments = [fake_argument(machine, argument) for argument in arguments]
        fake_keywords = {name: fake_argument(machine, value) for name, value in keywords.items()}
    except NotConstant as error:
        return _overridden(machine, error, function, arguments, keywords)
    _refuse_change_of_input(machine, function, arguments)
    if "out" in keywords:
        _refuse_resize_of_input(machine, function, fake_arguments, fake_keywords)
    try:
        result = machine.builder.run(function, fake_arguments, fake_keywords)
    except Required as needed:
        check_required(machine, function, needed)
        return call_graph(machine, function, arguments, keywords)
    except FAKE_FAILURES as error:
        positional = [_with_numbers(machine, argument) for argument in arguments]
        named = {name: _with_numbers(machine, value) for name, value in keywords.items()}
        if positional == list(arguments) and named == keywords:
            raise cannot_run(machine, function, error) from error
        return call_graph(machine, function, positional, named)
    except (NotConstant, FusewrightError):
        raise
    except Exception as error:
        _guard_leaves(machine)
        why = "it raises an error, and the program looks at its text"
        refusal = functools.partial(cannot_run, machine, function, why)
        try:
            machine.raise_error(type(error), UnknownValue(str, refusal, str(error)))
        except TracedError as raised:
            raised.operator = _called_name(function) if is_custom_operator(function) else ""
            raise
    _look_at_history(machine, function, result)
    _look_for_copy(machine, function, [*fake_arguments, *fake_keywords.values()], result)
    of_data = isinstance(result, torch.SymInt) and is_of_data(result)
    if result is not None and not contains_tensor(result) and not of_data:
        return machine.new(result)
    if function in RESTRIDING:
        _look_at_memory(machine, function, fake_arguments, fake_keywords)
    same = machine.tensors.get(id(result))
    in_place = len(arguments) > 3 or "inplace" in keywords  # of dropout
    if same is not None and function in RETURNS_SELF and not in_place:
        return same
    node = machine.builder.add_call(
        function,
        [node_argument(machine, argument) for argument in arguments],
        {name: node_argument(machine, value) for name, value in keywords.items()},
        result,
        machine.describe_node,
    )
    return result_value(machine, node, result)


def _called_name(function: Any) -> str:
    """The name in reports of a function, or of a method that stands by its name."""
    return function if isinstance(function, str) else function_name(function)


def _plain_name(function: Any) -> str:
    """The name of a function or method without its module or class; "" where it has none."""
    return function if isinstance(function, str) else getattr(function, "__name__", "")


def _look_at_history(machine: Machine, function: Any, result: Any) -> None:
    """Break the graph at a result with a gradient that no graph can compute."""
    if type(result) is tuple and result:  # of a bag of embeddings, the first is its result
        result = result[0]
    if not isinstance(result, torch.Tensor):
        return
    if not torch.is_grad_enabled():  # a written view of a parameter raises when it is asked
        return
    if torch_compat.has_no_derivative(result):
        reason = reasons.NO_DERIVATIVE
    elif torch_compat.has_sparse_gradient(result):
        reason = reasons.SPARSE_GRADIENT
    else:
        return
    name = _called_name(function)
    raise machine.unsupported(reason, function=name)


def _look_for_copy(machine: Machine, function: Any, arguments: Sequence[Any], result: Any) -> None:
    """Note a copy in place of which eager has a view for some sizes, and sizes depend on data: rows
    that lie apart, of which there may be one. Raises Unsupported where the program could notice.
    """
    name = _plain_name(function)
    if name.partition(".")[0] not in VIEWS_OR_COPIES or not isinstance(result, torch.Tensor):
        return
    original = next(filter(torch.is_tensor, arguments), result)
    if original.dtype != result.dtype or storages_of(original) & storages_of(result):
        return
    sizes = (*original.shape, *original.stride(), *result.shape)
    if not any(isinstance(size, torch.SymInt) and is_of_data(size) for size in sizes):
        return
    if not machine.builder.permissions.copies:
        why = "whether it gives a view or a copy depends on the values of a tensor"
        raise cannot_run(machine, function, why)
    machine.builder.note_copy(original, result)


CHANGES_TENSOR: Final = frozenset(
    {
        "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_",
        "detach_",
    }
)  # fmt: skip
"""Methods and functions that give the tensor itself other sizes, or another history."""


def _refuse_change_of_input(machine: Machine, function: Any, arguments: Sequence[Value]) -> None:
    """Break the graph before a call that changes more of an existing tensor than its values, where
    that cannot be repeated when the graph has run: the tensor has a history, may be a view that
    must not be detached, or begins elsewhere afterwards.
    """
    name = _plain_name(function)
    if name not in CHANGES_TENSOR or not arguments:
        return
    fakes = [value.fake for value in machine.inputs if value is arguments[0]]
    for fake in fakes:
        has_bits = fake.is_conj() or fake.is_neg()
        if name in ("as_strided_", "detach_") or fake.requires_grad or has_bits:
            raise machine.unsupported(reasons.INPUT_CHANGES, function=name)


def _refuse_resize_of_input(
    machine: Machine, function: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> None:
    """Break the graph before a call that gives an existing tensor without elements, its `out=`
    argument, the sizes of its result. Fakes raise for one that has elements.
    """
    outs = tuple(flat([keywords["out"]]))
    inputs = {id(leaf.fake) for leaf in machine.inputs}
    if not any(id(out) in inputs and out.numel() == 0 for out in outs):
        return
    fresh = {name: value for name, value in keywords.items() if name != "out"}
    try:
        results = tuple(flat([machine.builder.run(function, arguments, fresh)]))
    except Exception:  # The call raises it, too, where that is known to be right.
        return
    for out, result in zip(outs, results, strict=True):
        if id(out) in inputs and tuple(out.shape) != tuple(result.shape):
            name = _called_name(function)
            raise machine.unsupported(reasons.INPUT_CHANGES, function=name)


def _look_at_memory(
    machine: Machine, function: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> None:
    """Note an input of whose storage a call shows some part, counted from the storage's beginning.
    Raises Unsupported where that is beyond the elements of all inputs.
    """
    (storage,) = storages_of(arguments[:1] or [keywords.get("input", keywords.get("self"))])
    inputs = [value.fake for value in machine.inputs if storage in storages_of(value.fake)]
    if not inputs:
        return
    begin, end = restrided_bytes(function, arguments, keywords)
    if begin == end:  # of no elements
        return
    around = [fake for fake in inputs if _lie_within((begin, end), shown_bytes(fake))]
    name = _called_name(function)
    refusal = machine.unsupported(reasons.OUTSIDE_INPUT, function=name)
    if not around:
        raise refusal
    machine.restrided.setdefault(storage, None)
    if not any(is_dense(fake) for fake in around):
        machine.restrided[storage] = refusal


def _lie_within(part: tuple[Any, Any], whole: tuple[Any, Any]) -> bool:
    return bool(whole[0] <= part[0] and part[1] <= whole[1])


def _guard_leaves(machine: Machine) -> None:
    """Guard what autograd takes for leaves, which must not be written to: a call that raises on
    these tensors may not raise on others of the same sizes.
    """
    for tensor in machine.inputs:
        if tensor.object.requires_grad and tensor.source is not None:
            is_leaf = AttributeSource(tensor.source, "is_leaf")
            machine.guard(GuardKind.EQUALS, is_leaf, tensor.object.is_leaf)


def check_required(machine: Machine, function: Any, needed: Required) -> None:
    """Add the condition that a call puts on sizes that depend on data to the graph, as a check, and
    assume it from there on: when the call is tried again, it cannot fail for the same condition.
    Unsupported: checks are not allowed here, since eager may go on where the condition does not
    hold, as where one of two sizes to be broadcast is 1.
    """
    if not machine.builder.permissions.checks:
        raise cannot_run(machine, function, needed) from needed
    machine.builder.has_checks = machine.may_return = True
    call_graph(machine, torch_compat.check, [machine.new(needed.condition)], {})
    if needed.condition.node.depends_on_data():
        raise cannot_run(machine, function, needed) from needed


def _with_numbers(machine: Machine, value: Value) -> Value:
    """An argument with a tensor that the graph makes of a number for each that is known to hold
    it; the argument itself where there is none.
    """
    match value:
        case TensorValue():
            return _number_known(machine, value) or value
        case TupleValue() | ListValue() if value.cls in (tuple, list):
            items = value.read_items()
            numbers = [_with_numbers(machine, item) for item in items]
            if numbers != list(items):
                return (
                    machine.new_list(numbers) if value.cls is list else machine.new_tuple(numbers)
                )
        case SliceValue():
            parts = [_with_numbers(machine, part) for part in value.parts()]
            return value if parts == list(value.parts()) else SliceValue(*parts)
    return value


def _number_known(machine: Machine, tensor: TensorValue) -> Value | None:
    """A tensor that the graph makes of the number which another is known to hold from an input:
    whoever runs the graph knows the one, and not the other.
    """
    value = known_value(tensor.fake, machine.builder.readers)
    if value is None or value.dim() or known_value(tensor.fake) is not None:
        return None
    number, dtype = ConstantValue(value.item()), ConstantValue(value.dtype)
    return machine.call_graph(torch.tensor, [number], {"dtype": dtype})


def cannot_hold(machine: Machine, function: Any, error: NotConstant) -> Unsupported:
    """The graph break for an argument that a graph cannot hold."""
    name = _called_name(function)
    value = error.args[0] if error.args else None
    if isinstance(value, Value) and issubclass(value.python_type(), torch.Generator):
        return machine.unsupported(reasons.RANDOM_STATE, operation=f"{name}(generator=…)")
    argument = "an object" if value is None else value.describe()
    return machine.unsupported(reasons.TENSOR_TO_UNKNOWN, function=name, argument=argument)


def cannot_run(machine: Machine, function: Any, why: object) -> Unsupported:
    """The graph break for a call that does not run on fakes."""
    name = _called_name(function)
    return machine.unsupported(reasons.FAKE_EXECUTION, function=name, detail=why)


def fake_argument(machine: Machine, value: Value) -> Any:
    """A call's argument with fakes for tensors. Raises NotConstant."""
    return _in_graph(value, functools.partial(_fake, machine))


def node_argument(machine: Machine, value: Value) -> Any:
    """A call's argument with nodes for tensors. Raises NotConstant."""
    return _in_graph(value, functools.partial(_node, machine))


def _fake(machine: Machine, value: TensorValue | GraphObjectValue | SymbolicValue) -> Any:
    if isinstance(value, SymbolicValue):
        number = value.number
        if isinstance(number, torch.SymInt):
            machine.sizes.keep_in_range(number)
            integer = number.node.maybe_as_int()
            return number if integer is None else integer
        return number
    if not machine.builder.can_use(value.node):
        raise machine.unsupported(reasons.LEAVES_FUNCTION)
    return value.fake


def _node(machine: Machine, value: TensorValue | GraphObjectValue | SymbolicValue) -> Any:
    if not isinstance(value, SymbolicValue):
        return machine.builder.own(value.node)
    number = value.number
    return machine.builder.numbers.node_for(number) if isinstance(number, SYMBOLIC) else number


def _in_graph(value: Value, leaf: Callable[[Any], Any]) -> Any:
    """A call's argument with nodes or fakes for tensors. Raises NotConstant for what a graph cannot
    hold.
    """
    match value:
        case SymbolicValue():
            return leaf(value)
        case ConstantValue():
            constant = value.value
            return constant.item() if type(constant) in NUMPY_SCALARS else constant
        case TensorValue() | GraphObjectValue():
            return leaf(value)
        case TupleValue() | ListValue() if value.cls in (tuple, list, torch.Size):
            items = [_in_graph(item, leaf) for item in value.read_items()]
            return items if value.cls is list else tuple(items)
        case DictValue(cls=cls) if cls is dict:
            return {key.constant(): _in_graph(item, leaf) for key, item in value.read_entries()}
        case BuiltinValue():
            return value.function
        case _ if value.python_type() is slice:
            return slice(*[_in_graph(part, leaf) for part in value.parts()])
        case _:
            return value.constant()


def _overridden(
    machine: Machine,
    error: NotConstant,
    function: Any,
    arguments: Sequence[Value],
    keywords: dict[str, Value],
) -> Value:
    """Call `__torch_function__` of the object that a graph cannot hold; raise the error where its
    class has none.
    """
    value = error.args[0] if error.args else NONE
    cls = value.python_type()
    if isinstance(value, TensorValue) or isinstance(function, str) or cls is type:
        raise error
    raw, source = machine.class_attribute(cls, "__torch_function__")
    if raw is MISSING or function.__module__ == "_operator":
        raise error
    method = machine.bind(raw, source, value, cls)
    classes = machine.new_tuple([ClassValue(cls, ConstantSource(cls))])
    parts = [machine.new(function), classes, machine.new_tuple(arguments)]
    result = machine.call(method, [*parts, machine.new_dict(keywords)])
    if type(result) is ConstantValue and result.value is NotImplemented:
        machine.raise_error(TypeError, f"no implementation found for {function_name(function)!r}")
    return result


# -- results --------------------------------------------------------------------------------------


def result_value(machine: Machine, node: fx.Node, result: Any) -> Value:
    """The value of a node's result: tensors by node, the items of a tuple by nodes that take them
    out.
    """
    if isinstance(result, torch.Tensor):
        value = _known(machine, result)
        if value is None:
            value = machine.tensors[id(result)] = TensorValue(torch.Tensor, node, result)
        return value
    if isinstance(result, tuple | list):
        items = [_item(machine, node, index, item) for index, item in enumerate(result)]
        if isinstance(result, list):
            return ListValue(list, items)
        return TupleValue(type(result), items)
    if isinstance(result, dict):
        return machine.new_dict({key: _item(machine, node, key, result[key]) for key in result})
    return machine.new(result)


def _known(machine: Machine, fake: torch.Tensor) -> TensorValue | None:
    """The value that a fake belongs to, unless it is one of a function that has ended."""
    value = machine.tensors.get(id(fake))
    return None if value is None or not machine.builder.can_use(value.node) else value


def _item(machine: Machine, node: fx.Node, index: Any, item: Any) -> Value:
    if isinstance(item, types.FunctionType):
        return GraphObjectValue(_taken(machine, node, index, item), item)
    if not contains_tensor(item):
        return machine.new(item)
    tensor = _known(machine, item) if isinstance(item, torch.Tensor) else None
    if tensor is not None:
        return tensor
    return result_value(machine, _taken(machine, node, index, item), item)


def _taken(machine: Machine, node: fx.Node, index: Any, item: Any) -> fx.Node:
    return machine.builder.add_call(
        operator.getitem, [node, index], {}, item, machine.describe_node
    )


# -- methods and attributes of tensors ------------------------------------------------------------


def call_method(
    machine: Machine,
    tensor: TensorValue,
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """`tensor.name(*arguments, **keywords)`."""
    function = getattr(torch.Tensor, name, None)
    handler = meaning_of(function).handler
    if handler is not None:
        result = call_handler(machine, handler, function, [tensor, *arguments], keywords)
        if result is not DECLINED:
            return result  # type: ignore[no-any-return]
    if name in METADATA_METHODS:
        return _metadata_method(machine, tensor, name, arguments, keywords)
    if name in NEEDS_AUTOGRAD:
        raise machine.unsupported(reasons.GRAD_REQUIRED, operation=f"tensor.{name}()")
    number = _number_known(machine, tensor) if name in READS_VALUE else None
    if number is not None:
        return machine.call_graph(name, [number, *arguments], keywords)
    readers = machine.builder.readers
    unknown = name in READS_VALUE and known_value(tensor.fake, readers) is None
    if unknown and name in READS_INTEGER and _gives_symbol(machine, tensor):
        return machine.call_graph("item", [tensor], {})
    if unknown and name == "tolist" and _gives_symbols(machine, tensor):
        return _to_list(machine, tensor)
    if unknown or name in READS_MEMORY:
        why = reasons.TENSOR_VALUE
        refusal = functools.partial(machine.unsupported, why, operation=f"tensor.{name}()")
        if name == "__format__":  # Most often for a message that nobody will see.
            return UnknownValue(str, refusal)
        raise refusal()
    return machine.call_graph(name, [tensor, *arguments], keywords)


def _gives_symbol(machine: Machine, tensor: TensorValue) -> bool:
    """Whether the number in a tensor may be a symbol."""
    return _gives_symbols(machine, tensor) and tensor.fake.numel() == 1


def _gives_symbols(machine: Machine, tensor: TensorValue) -> bool:
    """Whether the numbers in a tensor, not many, may be symbols."""
    mode = machine.builder.mode
    if not (mode.allows_unknown_sizes and mode.of_data.integers and holds_integers(tensor.fake)):
        return False
    count = tensor.fake.numel()
    return not (isinstance(count, torch.SymInt) and is_of_data(count)) and count <= MOST_SYMBOLS


def _to_list(machine: Machine, tensor: TensorValue) -> Value:
    """`tensor.tolist()`, with a symbol for each number."""
    if tensor.fake.dim() == 0:
        return machine.call_graph("item", [tensor], {})
    rows = machine.call_graph("unbind", [tensor], {})
    assert isinstance(rows, TupleValue)
    items = [row for row in rows.items(machine) if isinstance(row, TensorValue)]
    return ListValue(list, [_to_list(machine, item) for item in items])


def _metadata_method(
    machine: Machine,
    tensor: TensorValue,
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value:
    try:
        fakes = [fake_argument(machine, argument) for argument in arguments]
        named = {keyword: fake_argument(machine, value) for keyword, value in keywords.items()}
        result = machine.builder.run(name, [tensor.fake, *fakes], named)
    except FusewrightError:
        raise
    except NotConstant as error:
        raise cannot_hold(machine, name, error) from None
    except Exception as error:
        machine.raise_error(type(error), *error.args)
    return machine.new(result)


def metadata(machine: Machine, tensor: TensorValue, name: str) -> Value:
    """An attribute of a tensor that torch computes: shape, dtype, device."""
    try:
        result = machine.builder.run(getattr, [tensor.fake, name], {})
    except FusewrightError:
        raise
    except Exception as error:
        machine.raise_error(type(error), *error.args)
    if isinstance(result, torch.Tensor):
        return machine.call_graph(getattr, [tensor, ConstantValue(name)], {})
    return machine.new(result)
