"""How each operator is run on fakes: by a rule of ours, by torch's meta kernel, or in a way of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from fusewright import torch_compat
from fusewright.containers import mapped
from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.fake.arguments import (
    CPU,
    common_device,
    faked,
    result_device,
    written_tensors,
)
from fusewright.fake.refusals import is_usual, refusal, refusal_of_overlap
from fusewright.fake.tensor import META, FakeTensor, meta_of
from fusewright.fake.values import (
    compare_whole,
    constant,
    lift_fresh,
    masked_select,
    run_on_masks,
    run_on_values,
)
from fusewright.fake_rules import RULES, VIEW_RULES, Geometry, ViewGeometry
from fusewright.fake_rules.arguments import flat
from fusewright.fake_rules.geometry import contiguous, same_sizes
from fusewright.fake_rules.requirements import REQUIREMENTS, picks_from_something, within_storage
from fusewright.fake_rules.trial import geometry_of, result_for_zeros
from fusewright.operators import OperatorKind, facts, operators_with
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat import OpOverload

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

Handler = Callable[["FakeMode", Any, tuple[Any, ...], dict[str, Any]], Any]
"""`(mode, operator, args, kwargs) -> result`."""

HANDLERS: Final[dict[bool, dict[Any, Handler]]] = {False: {}, True: {}}
"""By whether sizes are symbolic, and by operator; filled as operators are met."""

aten = torch.ops.aten


def choose_handler(op: Any, symbolic: bool) -> Handler:
    """The way in which `op` is run, decided once by its schema and tags. Raises:
    UnsupportedOperator when it cannot be traced.
    """
    handler = _noting_writes(op, _noting_randomness(op, _way_to_run(op, symbolic)))
    return _refusing_repeated(op, _refusing_overlap(op, handler))


def _way_to_run(op: Any, symbolic: bool) -> Handler:
    if not isinstance(op, OpOverload):
        raise UnsupportedOperator(f"{op} cannot be traced yet")
    special = SPECIAL.get(op)
    if special is not None:
        return special
    if torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags:
        return run_on_values
    if op in RULES:
        return run_by_rule
    if symbolic and op in VIEW_RULES:
        return run_view
    if _without_write(op) in RULES:
        return run_in_place
    if torch_compat.is_composite(op):
        return run_composite
    if any(argument.name == "device" for argument in torch_compat.operator_arguments(op)):
        return run_with_device
    return run_on_meta


def _noting_randomness(op: OpOverload, handler: Handler) -> Handler:
    """`handler`, made to tell its mode where the operator draws random numbers: attention does so
    where it has dropout.
    """
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return handler
    names = [argument.name for argument in torch_compat.operator_arguments(op)]
    place = names.index("dropout_p") if "dropout_p" in names else None

    def run(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        probability = args[place] if place is not None and place < len(args) else None
        draws = place is None or kwargs.get("dropout_p", probability)
        mode.is_random = mode.is_random or bool(draws)
        return handler(mode, op, args, kwargs)

    return run


def _refusing_repeated(op: OpOverload, handler: Handler) -> Handler:
    """`handler`, made to raise as eager does where an argument written to has elements that are one
    in memory, as after `expand`. Of a composite operator those that it is made of decide.
    """
    by_index = op is aten.index_put_.default
    lets_through = facts(op).writes_repeated or op in SPECIAL or torch_compat.is_composite(op)
    if not torch_compat.written_arguments(op) or (lets_through and not by_index):
        return handler

    def run(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        repeated = any(map(shows_repeated, written_tensors(op, args, kwargs)))
        if repeated and not (by_index and _puts_in_place(*args, **kwargs)):
            if op is torch.ops.aten.copy_.default and is_same_memory(*args[:2]):
                return args[0]
            if op is torch.ops.aten.embedding_renorm_.default:  # Eager goes row by row, unchecked.
                raise UnsupportedOperator(f"{op} of rows that are one in memory")
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the operation."
            )
        return handler(mode, op, args, kwargs)

    return run


def _puts_in_place(
    x: FakeTensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False
) -> bool:
    """Whether eager's `index_put_` writes to `x` itself: on a GPU what it adds, or puts in an order
    that is to be the same each time, it puts into a copy of what is not contiguous, and copies that
    back, which elements that are one in memory refuse.
    """
    is_in_order = accumulate or (
        torch.are_deterministic_algorithms_enabled() and values.numel() > 1
    )
    if x.device.type == "cpu" or not is_in_order:
        return True
    places = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in places):
        # Whether a mask chooses anything depends on its values, and nothing is not copied back; of
        # one that only says where to put a number, eager makes masked_fill_.
        raise UnsupportedOperator("index_put_ by a mask into elements that are one in memory")
    return any(index.numel() == 0 for index in places)


def _refusing_overlap(op: OpOverload, handler: Handler) -> Handler:
    """`handler`, made to raise as eager does where an argument written to and another have elements
    that are one in memory.
    """
    if not torch_compat.written_arguments(op) or op in SPECIAL or torch_compat.is_composite(op):
        return handler

    def run(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if mode.asks_eager and _shares_memory(op, args, kwargs):
            refused = refusal_of_overlap(op, args, kwargs)
            if refused is not None:
                raise refused
        return handler(mode, op, args, kwargs)

    return run


def _shares_memory(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether two tensors of a call lie in one storage, one of them an argument written to."""
    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, FakeTensor)]
    if len(tensors) < 2:
        return False
    storages = [torch_compat.storage_key(tensor.meta_tensor) for tensor in tensors]
    written = {id(tensor) for tensor in written_tensors(op, args, kwargs)}
    return any(
        id(tensor) in written and storages.count(storage) > 1
        for tensor, storage in zip(tensors, storages, strict=True)
    )


def is_same_memory(a: Any, b: Any) -> bool:
    """Whether two tensors are known to show the same elements of one storage in the same way: eager
    copies nothing from one to the other.
    """
    return (
        isinstance(b, FakeTensor)
        and torch_compat.storage_key(a.meta_tensor) == torch_compat.storage_key(b.meta_tensor)
        and (a.dtype, a.is_conj(), a.is_neg()) == (b.dtype, b.is_conj(), b.is_neg())
        and same_sizes(
            (*a.shape, *a.stride(), a.storage_offset()), (*b.shape, *b.stride(), b.storage_offset())
        )
    )


def shows_repeated(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor are certainly one in memory: a dimension has stride 0."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    repeats = any(step == 0 and size > 1 for step, size in pairs if isinstance(step, int))
    return repeats and tensor.numel() > 0


def _noting_writes(op: OpOverload, handler: Handler) -> Handler:
    """`handler`, made to tell its mode which tensors are written to; those that a composite
    operator is made of tell that themselves.
    """
    if not torch_compat.written_arguments(op) or torch_compat.is_composite(op):
        return handler

    def run(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = handler(mode, op, args, kwargs)
        written = written_tensors(op, args, kwargs)
        mode.writes.note(tensor.meta_tensor for tensor in written if isinstance(tensor, FakeTensor))
        return result

    return run


def run_by_rule(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Geometry from our own rule; torch's meta kernel where the rule does not apply, or to raise
    torch's error.
    """
    args, kwargs = faked(mode, args, kwargs)
    geometry = RULES[op](*args, **kwargs)
    if geometry is None:
        return run_on_meta(mode, op, args, kwargs)
    if mode.asks_eager and not is_usual(args, kwargs):
        _ask_eager(mode, op, args, kwargs)
    device = result_device(op, args, kwargs)
    if isinstance(geometry, Geometry):
        return mode.make(geometry, device)
    return tuple(part and mode.make(part, device) for part in geometry)


def _ask_eager(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any = ()
) -> None:
    """Raise what eager raises for such arguments."""
    mode.refusal = refusal(op, args, kwargs, results)
    if mode.refusal is not None:
        raise mode.refusal


def run_view(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view whose geometry our own rule tells; torch's meta kernel raises torch's error where it
    tells none.
    """
    args, kwargs = faked(mode, args, kwargs)
    views = VIEW_RULES[op](*args, **kwargs)
    if views is None:
        return run_on_meta(mode, op, args, kwargs)
    source = args[0]
    storage_bytes = source.untyped_storage().nbytes()

    def show(view: ViewGeometry) -> FakeTensor:
        meta = source.meta_tensor.as_strided(view.size, view.stride, view.offset)
        return mode.wrap(meta, source.device, storage_bytes)

    return show(views) if isinstance(views, ViewGeometry) else tuple(map(show, views))


def _without_write(op: OpOverload) -> OpOverload | None:
    """`add.Tensor` for `add_.Tensor`; None for operators that are not in place, or only so."""
    namespace, _, rest = op.name().partition("::")
    name, _, overload = rest.partition(".")
    if torch_compat.written_arguments(op) != ("self",) or not name.endswith("_"):
        return None
    return torch_compat.overload_by_name(namespace, name[:-1], overload)


def run_in_place(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor written to, where the rule of the operator that does not write says that the
    result has its type and sizes; else torch's meta kernel, which raises torch's own error.
    """
    args, kwargs = faked(mode, args, kwargs)
    geometry = RULES[_without_write(op)](*args, **kwargs)
    target = args[0]
    fits = isinstance(geometry, Geometry) and (geometry.dtype, geometry.size) == (
        target.dtype,
        tuple(target.shape),
    )
    strides = list(map(index_of, target.stride())) if mode.facts else target.stride()
    overlaps = 0 in strides or len(set(strides)) < target.dim()  # or may
    if not fits or (overlaps and not facts(op).writes_repeated):
        return run_on_meta(mode, op, args, kwargs)
    common_device(op, args, kwargs)
    if mode.asks_eager and not is_usual(args, kwargs):
        _ask_eager(mode, op, args, kwargs)
    return target


def run_on_meta(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run torch's meta kernel on the meta tensors inside; an argument written to is returned as
    itself. Of numbers alone, as in `torch.div(7, 2)`, the result is known.
    """
    args, kwargs = faked(mode, args, kwargs)
    if not any(isinstance(value, torch.Tensor) for value in flat((*args, *kwargs.values()))):
        if not torch_compat.is_of_torch(op):  # it may do anything, and is not to do it now
            raise UnsupportedOperator(f"{op} is given no tensor: what it gives is not known")
        value = op(*args, **kwargs)
        return constant(mode, value, value.device)
    fits = REQUIREMENTS.get(op) or REQUIREMENTS.get(_without_write(op))
    if fits is not None and not fits(*args, **kwargs):
        raise RuntimeError(f"{op}: the sizes of its arguments do not fit together")
    device = common_device(op, args, kwargs)
    result = _run_meta_kernel(mode, op, args, kwargs, device)
    if mode.asks_eager and not torch_compat.is_view_operator(op):
        _ask_eager(mode, op, args, kwargs, result)
    return result


RESIZES = "{} resizes an `out=` argument that has elements"


def _run_meta_kernel(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Any:
    torch_compat.run_references_without_dynamo()
    kernels = torch_compat.python_kernels() if mode.facts else nullcontext()
    try:
        with kernels:
            metas = op(*mapped(meta_of, args), **mapped(meta_of, kwargs))
    except NotImplementedError as error:
        return run_on_zeros(mode, op, args, kwargs, error)
    except RuntimeError as error:
        if torch_compat.is_refusal_to_resize(error):
            raise UnsupportedOperator(RESIZES.format(op)) from error
        raise
    written = written_tensors(op, args, kwargs)
    if not written:
        if not torch_compat.is_view_operator(op):
            metas = mapped(partial(_without_overlap, op), metas)
        return _wrap_results(mode, metas, device)
    by_meta = {id(tensor.meta_tensor): tensor for tensor in written}
    for tensor in written:
        if tuple(tensor.shape) != tuple(tensor.meta_tensor.shape):
            if tensor.numel() != 0:  # eager warns, and other views of the memory see it written
                raise UnsupportedOperator(RESIZES.format(op))
            take_geometry(tensor, tensor.meta_tensor)
    return mapped(
        lambda meta: by_meta.get(id(meta)) if id(meta) in by_meta else mode.wrap(meta, device),
        metas,
    )


def _without_overlap(op: OpOverload, meta: torch.Tensor) -> torch.Tensor:
    """The geometry of a computed result, whose elements each have memory of their own: what some
    versions of torch's meta kernels of `diagonal_scatter` and its like give for an expanded tensor.
    """
    steps = zip(meta.shape, meta.stride(), strict=True) if meta.layout is torch.strided else ()
    if not any(type(step) is int and step == 0 and size > 1 for size, step in steps):
        return meta
    if facts(op).is_unfilled:  # The program asked for these strides.
        raise UnsupportedOperator(f"{op} of elements that are one in memory")
    return torch.empty_like(meta)


def _wrap_results(mode: FakeMode, metas: Any, device: torch.device) -> Any:
    def wrap(meta: torch.Tensor) -> FakeTensor:
        if meta.layout is not torch.strided:
            raise UnsupportedOperator(f"a result of layout {meta.layout} cannot be traced")
        return mode.wrap(meta, device)

    return mapped(wrap, metas)


def run_with_device(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Factories and conversions: the result is on the device asked for, else on the arguments',
    else on the CPU.
    """
    args, kwargs = faked(mode, args, kwargs)
    device = result_device(op, args, kwargs)
    meta_kwargs = {**kwargs, "device": META}
    meta_kwargs.pop("pin_memory", None)
    result = _run_meta_kernel(mode, op, args, meta_kwargs, device)
    if mode.asks_eager and device == CPU:
        _ask_eager(mode, op, args, kwargs, result)
    return result


def run_composite(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a composite operator apart; one arrives here only when autograd is off altogether
    (inference mode).
    """
    with mode:
        return torch_compat.decompose(op, args, kwargs)


def run_on_zeros(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failure: Exception
) -> Any:
    """Where torch has no meta kernel for an operator of its own, run that on zeros, to see what it
    gives. Raises: `UnsupportedOperator`, from `failure`, where it is not tried.
    """
    results = result_for_zeros(op, args, kwargs)
    if results is None:
        what = f"torch cannot tell the result's sizes of {op}: {failure}"
        raise UnsupportedOperator(what) from failure
    device = common_device(op, args, kwargs)
    return mapped(lambda real: mode.make(geometry_of(real), device), results)


def by_trial(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators whose tags say that sizes depend on values, where in fact none does: lengths are
    given as numbers, or the driver asks for no rank to give residuals.
    """
    args, kwargs = faked(mode, args, kwargs)
    needs_rank = kwargs.get("driver") not in (None, "gelsy", "gels")
    if needs_rank or common_device(op, args, kwargs) != CPU:
        return run_on_values(mode, op, args, kwargs)
    return run_on_zeros(mode, op, args, kwargs, DataDependent("sizes depend on values"))


def embedding_bag(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """On the CPU, which of the tensors kept for backward are empty depends on types, layouts and
    the processor: it is tried, on one row of weights.
    """
    args, kwargs = faked(mode, args, kwargs)
    if common_device(op, args, kwargs) != CPU or mode.facts:
        return run_on_meta(mode, op, args, kwargs)
    row = mode.dispatch(aten.slice.Tensor, (args[0], 0, 0, 1), {})
    unknown = UnsupportedOperator("this bag of embeddings")
    return run_on_zeros(mode, op, (row, *args[1:]), kwargs, unknown)


def index(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Advanced indexing: only a mask makes the result's size depend on values."""
    masks = [
        tensor
        for tensor in args[1]
        if tensor is not None and tensor.dtype in (torch.bool, torch.uint8)
    ]
    if masks:
        return run_on_masks(mode, op, args, kwargs, masks)
    if not picks_from_something(*args):
        raise IndexError("index is out of bounds for dimension with size 0")
    return run_by_rule(mode, op, args, kwargs)


def change_geometry(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`transpose_`, `squeeze_`, `as_strided_` …: the same tensor with other sizes, on the wrapper
    as on the inside.
    """
    tensor = args[0]
    if op is aten.as_strided_.default and not within_storage(*args, **kwargs):
        raise RuntimeError(f"{op}: beyond the storage of its argument")
    view = VIEW_RULES[op](*args, **kwargs) if mode.facts else None
    if isinstance(view, ViewGeometry):
        tensor.meta_tensor = tensor.meta_tensor.as_strided(view.size, view.stride, view.offset)
    else:
        op(*mapped(meta_of, args), **mapped(meta_of, kwargs))
    inside = tensor.meta_tensor
    with torch_compat.without_torch_dispatch(), torch.no_grad():
        aten.as_strided_.default(tensor, inside.size(), inside.stride(), inside.storage_offset())
    tensor.constant = None
    return tensor


def rrelu(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Row-major whatever the layout of the argument is, where torch's meta kernel keeps that."""
    result = run_on_meta(mode, op, args, kwargs)
    return mode.make(contiguous(result.dtype, tuple(result.shape)), result.device)


def take_geometry(tensor: FakeTensor, inside: torch.Tensor) -> None:
    """Let `tensor` be the fake around `inside`: an `out=` argument that was resized."""
    with torch_compat.without_torch_dispatch(), torch.no_grad():
        tensor.data = tensor.fake_mode.wrap(inside, tensor.device)
    tensor.meta_tensor, tensor.constant = inside, None


def refuse(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`resize_`, `set_`: the tensor gets other memory, which a fake cannot follow."""
    raise UnsupportedOperator(f"{op} gives a tensor other memory and cannot be traced")


def refuse_quantised(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`quantize_per_tensor`: torch's meta kernel gives an ordinary tensor."""
    raise UnsupportedOperator(f"the result of {op} is quantised and cannot be traced")


class NeedsPlainSizes(Exception):
    """C++ code asks a fake of symbolic sizes for plain ones."""


def plain_sizes(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`size` and `stride`, from C++ that takes no symbolic ones: they are assumed to stay, where
    there is no other way.
    """
    if mode.refuses_plain_sizes:
        raise NeedsPlainSizes
    numbers = args[0].shape if op is aten.size.default else args[0].stride()
    return [int(number) for number in numbers]


def device_of(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.device:
    """`prim.device`: only asked for when torch could not read the wrapper's own field."""
    return args[0].device  # type: ignore[no-any-return]


SPECIAL: dict[Any, Handler] = {
    aten.lift_fresh.default: lift_fresh,
    aten.lift.default: lift_fresh,
    aten._local_scalar_dense.default: run_on_values,
    aten.equal.default: compare_whole,
    aten.index.Tensor: index,
    aten.masked_select.default: masked_select,
    aten._embedding_bag.default: embedding_bag,
    aten._ctc_loss.default: by_trial,
    aten.linalg_lstsq.default: by_trial,
    aten.rrelu_with_noise.default: rrelu,
    **dict.fromkeys(operators_with(lambda row: row.kind is OperatorKind.GEOMETRY), plain_sizes),
    torch.ops.prim.device.default: device_of,
    **dict.fromkeys(operators_with(lambda row: row.turns_into), change_geometry),
    **dict.fromkeys(operators_with(lambda row: row.takes_memory), refuse),
    **dict.fromkeys(
        (
            aten.quantize_per_tensor.default,
            aten.quantize_per_tensor.tensor_qparams,
            aten.quantize_per_tensor.tensors,
        ),
        refuse_quantised,
    ),
}
