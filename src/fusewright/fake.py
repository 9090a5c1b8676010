"""Fake tensors: sizes, strides, dtype and device of a tensor without its data, cheap enough to
trace a model with.

A `FakeTensor` is a wrapper subclass that reports the real device; inside it is a meta tensor, whose
storage identity says which fakes alias. A `FakeMode` runs any ATen operator on fakes: by a rule of
our own where one is known (`fake_rules`, about 10 us an operator), else on the meta tensors by
torch's own meta kernels. Composite operators have been taken apart by the dispatcher before they
arrive here, for the real device, since that is what a fake reports.

Unlike torch's own `FakeTensorMode`, this imports neither `torch._dynamo` nor sympy on the common
path. Sizes are plain integers; in a mode with `ShapeFacts` they may be expressions over symbols.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.fake_rules import RULES, UNKNOWN_RULES, VIEW_RULES, Geometry, View
from fusewright.fake_rules.arguments import flat, mapped
from fusewright.fake_rules.factories import FILLS
from fusewright.fake_rules.geometry import extent
from fusewright.fake_rules.trial import geometry_of, is_small, result_for_zeros, zeros_for
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of, symbolic_int
from fusewright.torch_compat import OpOverload, TorchDispatchMode

META = torch.device("meta")
CPU = torch.device("cpu")
CONSTANT_LIMIT = 1024
"""Elements up to which the value of a constant tensor is kept."""

aten = torch.ops.aten


class FakeTensor(torch.Tensor):
    """A tensor without data. `meta_tensor` carries its geometry and storage identity, `fake_mode`
    made it.

    `constant` is its value where that is known (a small tensor made from literals), so that
    `.item()` works on it.
    """

    meta_tensor: torch.Tensor
    fake_mode: FakeMode
    constant: torch.Tensor | None

    __torch_function__ = torch_compat.disabled_torch_function  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls,
        meta_tensor: torch.Tensor,
        device: torch.device,
        mode: FakeMode,
        requires_grad: bool = False,
        storage_bytes: int | None = None,
    ) -> FakeTensor:
        if torch.is_inference_mode_enabled():  # an inference tensor could not be viewed later
            with torch.inference_mode(False):
                return cls.__new__(cls, meta_tensor, device, mode, requires_grad, storage_bytes)
        self = torch_compat.make_wrapper(cls, meta_tensor, device, requires_grad, storage_bytes)
        if meta_tensor.is_conj() or meta_tensor.is_neg():
            torch_compat.set_math_bits(self, like=meta_tensor)
        self.meta_tensor = meta_tensor
        self.fake_mode = mode
        self.constant = None
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for value in flat((*args, *kwargs.values())):
            if isinstance(value, FakeTensor):
                return value.fake_mode.dispatch(op, args, kwargs)
        return NotImplemented

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        strides = "" if self.meta_tensor.is_contiguous() else f", stride={self.stride()}"
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.device}{strides})"

    def tolist(self) -> Any:
        return _known_value(self, "tolist").tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return _known_value(self, "numpy").numpy(force=force)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied  # type: ignore[no-any-return]


class FakeMode(TorchDispatchMode):
    """Runs operators on fakes; while it is entered, factory functions give fakes too. One a trace,
    one thread.

    `facts`: what is known of symbolic sizes; None where all sizes are numbers.
    `allows_unknown_sizes`: results whose sizes depend on values get a symbol of their own, instead
    of raising `DataDependent`.
    """

    def __init__(
        self, facts: ShapeFacts | None = None, *, allows_unknown_sizes: bool = False
    ) -> None:
        super().__init__()
        self.facts = facts
        self.allows_unknown_sizes = allows_unknown_sizes
        self._handlers = _HANDLERS if facts is None else _SYMBOLIC_HANDLERS
        self._fakes: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._constants: list[weakref.ref[FakeTensor]] = []
        self._refuses_plain_sizes = False
        self.is_random = False
        """Whether an operator was run that draws random numbers."""

    def use_facts(self, facts: ShapeFacts, *, of_data: bool = False) -> None:
        """Expect symbolic sizes from here on; `of_data`: also those that depend on values."""
        self.allows_unknown_sizes = self.allows_unknown_sizes or of_data
        self.facts, self._handlers = facts, _SYMBOLIC_HANDLERS

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's hook that keeps it from importing dynamo to wrap `__torch_dispatch__`."""
        return False

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.dispatch(op, args, kwargs or {})

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`function(*args, **kwargs)`, which runs operators on fakes in this mode.

        Where sizes are symbolic, and a composite operator in C++ takes none, the call is made again
        with torch's Python implementations of such operators.
        """
        if self.facts is None:
            return function(*args, **kwargs)
        self._refuses_plain_sizes = True
        try:
            return function(*args, **kwargs)
        except _NeedsPlainSizes:
            pass
        except RuntimeError as error:
            if not torch_compat.is_symbolic_refusal(error):
                raise
        finally:
            self._refuses_plain_sizes = False
        with torch_compat.python_kernels():
            return function(*args, **kwargs)

    # -- real tensors -----------------------------------------------------------------------------

    def fake(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake that stands for `tensor`: always the same one for the same tensor, aliasing
        where they alias.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._fakes.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        fake = self.fake_distinct(tensor)
        key = id(tensor)
        self._fakes[key] = (weakref.ref(tensor, lambda _: self._fakes.pop(key, None)), fake)
        return fake

    def fake_distinct(
        self,
        tensor: torch.Tensor,
        size: Sequence[int] | None = None,
        stride: Sequence[int] = (),
    ) -> FakeTensor:
        """A new fake for `tensor`, aliasing earlier ones of the same storage but never identical to
        one. Its sizes and strides are those of `tensor` unless given, then both.
        """
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise UnsupportedOperator(f"a tensor of layout {tensor.layout} cannot be traced")
        with torch.inference_mode(False):
            meta = torch.empty((), dtype=tensor.dtype, device=META)
            if tensor.device.type == "meta":
                meta = tensor.detach()
            else:
                storage = self._meta_storage(tensor.untyped_storage())
                if size is None:
                    meta.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
                else:
                    meta.set_(storage, 0, (0,), (1,))
            storage_bytes = None
            if size is not None:
                meta = meta.as_strided(size, stride, tensor.storage_offset())
                storage_bytes = extent(size, stride, tensor.storage_offset()) * meta.itemsize
            if tensor.is_conj():
                meta = torch_compat.conjugate_view(meta)
            if tensor.is_neg():
                meta = torch_compat.negative_view(meta)
            return FakeTensor(meta, tensor.device, self, tensor.requires_grad, storage_bytes)

    def fake_input(
        self,
        tensor: torch.Tensor,
        size: Sequence[int] | None = None,
        stride: Sequence[int] = (),
    ) -> FakeTensor:
        """`fake_distinct`, for the input of a program. The fake of a tensor with a history has one
        too: it is the result of a differentiable operation, since a leaf must not be written to.
        """
        fake = self.fake_distinct(tensor, size, stride)
        if fake.requires_grad and not tensor.is_leaf:
            with torch.enable_grad(), self:
                step = torch.zeros((), dtype=fake.dtype, device=fake.device, requires_grad=True)
                fake.requires_grad_(False)
                fake.add_(step)
        return fake

    def _meta_storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        key = torch_compat.storage_object_key(storage)
        known = self._storages.get(key)
        if known is None:
            # The real storage is kept alive with its stand-in, so that its key is not used again
            # meanwhile.
            size = storage.nbytes()  # of another's fake, symbolic perhaps
            known = (storage, torch.UntypedStorage(size if type(size) is int else 0, device="meta"))
            self._storages[key] = known
        return known[1]

    # -- operators --------------------------------------------------------------------------------

    def dispatch(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `op` on fakes (real tensors among the arguments are faked first); give fakes.

        Raises `DataDependent` when the result needs values, `UnsupportedOperator` when torch cannot
        say its geometry.
        """
        handler = self._handlers.get(op)
        if handler is None:
            handler = _noting_randomness(op, _choose_handler(op, self.facts is not None))
            handler = _noting_values(op, handler)
            self._handlers[op] = handler
        if not self.allows_unknown_sizes or self.facts is None:
            return self._run(handler, op, args, kwargs)
        with self.asking_for_layout():
            return self._run(handler, op, args, kwargs)

    @contextmanager
    def asking_for_layout(self) -> Iterator[None]:
        """Context in which questions about sizes that depend on data are answered as for large
        ones: by rules and decompositions, which look for special layouts.
        """
        facts = self.facts
        if facts is None or not self.allows_unknown_sizes:
            yield
            return
        before, facts.of_layout = facts.of_layout, True
        try:
            yield
        finally:
            facts.of_layout = before

    def _run(self, handler: Handler, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_inference_mode_enabled():
            return handler(self, op, args, kwargs)
        with torch.inference_mode(False), torch.no_grad():
            return handler(self, op, args, kwargs)

    def wrap(
        self, meta: torch.Tensor, device: torch.device, storage_bytes: int | None = None
    ) -> FakeTensor:
        """A fake on `device` around a meta tensor."""
        if meta.layout is not torch.strided:
            raise UnsupportedOperator(f"a tensor of layout {meta.layout} cannot be traced")
        return FakeTensor(meta, device, self, False, storage_bytes)

    def make(self, geometry: Geometry, device: torch.device) -> FakeTensor:
        """A fake of this geometry in a storage of its own."""
        if self.facts is None or not geometry.is_symbolic:
            return self.wrap(geometry.allocate(), device)
        memory = torch.empty((0,), dtype=geometry.dtype, device=META)
        meta = memory.as_strided(geometry.size, geometry.stride)
        return self.wrap(meta, device, extent(geometry.size, geometry.stride) * meta.itemsize)

    def make_constant(self, fake: FakeTensor, value: torch.Tensor) -> None:
        """Remember that `fake` holds `value`, until something unknown is written to its storage."""
        if value.numel() <= CONSTANT_LIMIT:
            fake.constant = value
            self._constants.append(weakref.ref(fake))

    def follow_constants(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Where every tensor argument is a known constant run `op` on the values too, which stay
        where they are, whatever the device asked for; forget values overwritten.
        """
        if not self._constants:
            return
        tensors = [v for v in flat((*args, *kwargs.values())) if isinstance(v, torch.Tensor)]
        known = tensors and all(map(_is_known, tensors))
        if known and torch.Tag.nondeterministic_seeded not in op.tags:
            kwargs = {name: value for name, value in kwargs.items() if name != "device"}
            values = op(*mapped(args, _constant_of), **mapped(kwargs, _constant_of))
            for fake, value in zip(flat((result,)), flat((values,)), strict=True):
                if isinstance(fake, FakeTensor) and fake.constant is None:
                    self.make_constant(fake, value)
            return
        written = _written_tensors(op, args, kwargs)
        keys = {
            torch_compat.storage_key(t.meta_tensor) for t in written if isinstance(t, FakeTensor)
        }
        for reference in self._constants if keys else ():
            fake = reference()
            if fake is not None and torch_compat.storage_key(fake.meta_tensor) in keys:
                fake.constant = None


# -- handlers: (mode, operator, args, kwargs) -> result -------------------------------------------

Handler = Callable[[FakeMode, Any, tuple[Any, ...], dict[str, Any]], Any]
_HANDLERS: dict[Any, Handler] = {}
_SYMBOLIC_HANDLERS: dict[Any, Handler] = {}
"""By operator, filled as operators are met: for sizes that are numbers, and for symbolic ones."""


def _choose_handler(op: Any, symbolic: bool) -> Handler:
    """The way in which `op` is run, decided once by its schema and tags."""
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
        given = args[place] if place is not None and place < len(args) else None
        draws = place is None or kwargs.get("dropout_p", given)
        mode.is_random = mode.is_random or bool(draws)
        return handler(mode, op, args, kwargs)

    return run


def _noting_values(op: OpOverload, handler: Handler) -> Handler:
    """`handler`, made to keep the values of small tensors that are filled with numbers: whatever
    is computed of those alone is known too.
    """
    fill = FILLS.get(op)
    if fill is None:
        return handler

    def run(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = handler(mode, op, args, kwargs)
        plain = not mode.facts and result.numel() <= CONSTANT_LIMIT
        if plain and result.constant is None:
            mode.make_constant(result, fill(result, args))
        return result

    return run


def run_by_rule(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Geometry from our own rule; torch's meta kernel where the rule does not apply, or to raise
    torch's error.
    """
    args, kwargs = _faked(mode, args, kwargs)
    geometry = RULES[op](*args, **kwargs)
    if geometry is None:
        return run_on_meta(mode, op, args, kwargs)
    device = result_device(op, args, kwargs)
    if isinstance(geometry, Geometry):
        result: Any = mode.make(geometry, device)
    else:
        result = tuple(mode.make(one, device) for one in geometry)
    mode.follow_constants(op, args, kwargs, result)
    return result


def run_view(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view whose geometry our own rule tells; torch's meta kernel raises torch's error where it
    tells none.
    """
    args, kwargs = _faked(mode, args, kwargs)
    found = VIEW_RULES[op](*args, **kwargs)
    if found is None:
        return run_on_meta(mode, op, args, kwargs)
    source = args[0]
    storage_bytes = source.untyped_storage().nbytes()

    def show(view: View) -> FakeTensor:
        meta = source.meta_tensor.as_strided(view.size, view.stride, view.offset)
        return mode.wrap(meta, source.device, storage_bytes)

    result = show(found) if isinstance(found, View) else tuple(map(show, found))
    mode.follow_constants(op, args, kwargs, result)
    return result


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
    args, kwargs = _faked(mode, args, kwargs)
    geometry = RULES[_without_write(op)](*args, **kwargs)
    target = args[0]
    fits = isinstance(geometry, Geometry) and (geometry.dtype, geometry.size) == (
        target.dtype,
        tuple(target.shape),
    )
    strides = list(map(index_of, target.stride())) if mode.facts else target.stride()
    overlaps = 0 in strides or len(set(strides)) < target.dim()  # or may
    if not fits or overlaps:
        return run_on_meta(mode, op, args, kwargs)
    common_device(op, args, kwargs)
    mode.follow_constants(op, args, kwargs, target)
    return target


def run_on_meta(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run torch's meta kernel on the meta tensors inside; an argument written to is returned as
    itself. Of numbers alone, as in `torch.div(7, 2)`, the result is known.
    """
    args, kwargs = _faked(mode, args, kwargs)
    if not any(isinstance(value, torch.Tensor) for value in flat((*args, *kwargs.values()))):
        value = op(*args, **kwargs)
        return constant(mode, value, value.device)
    device = common_device(op, args, kwargs)
    return _run_meta_kernel(mode, op, args, kwargs, device)


def run_with_device(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Factories and conversions: the result is on the device asked for, else on the arguments',
    else on the CPU.
    """
    args, kwargs = _faked(mode, args, kwargs)
    device = result_device(op, args, kwargs)
    meta_kwargs = {**kwargs, "device": META}
    meta_kwargs.pop("pin_memory", None)
    return _run_meta_kernel(mode, op, args, meta_kwargs, device)


def run_composite(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a composite operator apart; one arrives here only when autograd is off altogether
    (inference mode).
    """
    with mode:
        return op.decompose(*args, **kwargs)


def run_on_values(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators whose result depends on values: possible on known constants alone."""
    tensors = [v for v in flat((*args, *kwargs.values())) if isinstance(v, torch.Tensor)]
    if not all(map(_is_known, tensors)):
        result = _of_unknown_size(mode, op, args, kwargs)
        if result is not None:
            return result
        raise DataDependent(f"{op} gives a result that depends on the values of a tensor")
    values = op(*mapped(args, _constant_of), **mapped(kwargs, _constant_of))
    return mapped(values, lambda value: constant(mode, value, value.device))


def _of_unknown_size(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A result whose sizes, or whose value, are symbols of their own; None where that is not
    wanted, or not known.
    """
    if not mode.allows_unknown_sizes:
        return None
    facts = mode.facts
    if facts is None:
        facts = ShapeFacts()
        mode.use_facts(facts)
    args, kwargs = _faked(mode, args, kwargs)
    if op is aten._local_scalar_dense.default:
        whole = not (args[0].is_floating_point() or args[0].is_complex())
        known = args[0].dtype is torch.bool or not whole
        return None if known else symbolic_int(facts, facts.unknown_size(None))
    rule = UNKNOWN_RULES.get(op)
    geometry = None if rule is None else rule(facts, *args, **kwargs)
    if geometry is None:
        return None
    device = result_device(op, args, kwargs)
    if isinstance(geometry, Geometry):
        return mode.make(geometry, device)
    return tuple(mode.make(one, device) for one in geometry)


def index(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Advanced indexing: only a mask makes the result's size depend on values."""
    masks = [one for one in args[1] if one is not None and one.dtype in (torch.bool, torch.uint8)]
    if masks:
        return run_on_masks(mode, op, args, kwargs, masks)
    return run_by_rule(mode, op, args, kwargs)


def by_trial(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators whose tags say that sizes depend on values, where in fact none does: lengths are
    given as numbers, or the driver asks for no rank to give residuals.
    """
    args, kwargs = _faked(mode, args, kwargs)
    needs_rank = kwargs.get("driver") not in (None, "gelsy", "gels")
    if needs_rank or common_device(op, args, kwargs) != CPU:
        return run_on_values(mode, op, args, kwargs)
    return _run_on_zeros(mode, op, args, kwargs, DataDependent("sizes depend on values"))


def embedding_bag(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """On the CPU, which of the tensors kept for backward are empty depends on types, layouts and
    the processor: it is tried, on one row of weights.
    """
    args, kwargs = _faked(mode, args, kwargs)
    if common_device(op, args, kwargs) != CPU or mode.facts:
        return run_on_meta(mode, op, args, kwargs)
    row = mode.dispatch(aten.slice.Tensor, (args[0], 0, 0, 1), {})
    unknown = UnsupportedOperator("this bag of embeddings")
    return _run_on_zeros(mode, op, (row, *args[1:]), kwargs, unknown)


def masked_select(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The elements where a mask holds."""
    return run_on_masks(mode, op, args, kwargs, [args[1]])


def run_on_masks(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], masks: list[Any]
) -> Any:
    """Operators whose result's size depends on `masks`: possible where those are known."""
    args, kwargs = _faked(mode, args, kwargs)
    others = [v for v in flat(args) if isinstance(v, torch.Tensor) and not _is_known(v)]
    if not others or mode.facts or not is_small(others) or not all(map(_is_known, masks)):
        return run_on_values(mode, op, args, kwargs)
    values = mapped(args, lambda one: one.constant if _is_known(one) else zeros_for(one))
    return mode.make(geometry_of(op(*values, **kwargs)), args[0].device)


def _is_known(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.constant is not None


def lift_fresh(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor(…)` has made a real tensor inside torch: a constant, whose value is kept when
    small.
    """
    (tensor,) = args
    if isinstance(tensor, FakeTensor):
        return tensor
    return constant(mode, tensor, tensor.device)


def change_geometry(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`transpose_`, `squeeze_`, `as_strided_` …: the same tensor with other sizes, on the wrapper
    as on the inside.
    """
    tensor = args[0]
    view = VIEW_RULES[op](*args, **kwargs) if mode.facts else None
    if isinstance(view, View):
        tensor.meta_tensor = tensor.meta_tensor.as_strided(view.size, view.stride, view.offset)
    else:
        op(*mapped(args, _meta_of), **mapped(kwargs, _meta_of))
    inside = tensor.meta_tensor
    with torch_compat.without_torch_dispatch(), torch.no_grad():
        aten.as_strided_.default(tensor, inside.size(), inside.stride(), inside.storage_offset())
    if tensor.constant is not None:
        op(tensor.constant, *args[1:], **kwargs)
    return tensor


def refuse(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`resize_`, `set_`: the tensor gets other memory, which a fake cannot follow."""
    raise UnsupportedOperator(f"{op} gives a tensor other memory and cannot be traced")


class _NeedsPlainSizes(Exception):
    """C++ code asks a fake of symbolic sizes for plain ones."""


def plain_sizes(mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`size` and `stride`, from C++ that takes no symbolic ones: they are assumed to stay, where
    there is no other way.
    """
    if mode._refuses_plain_sizes:
        raise _NeedsPlainSizes
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
    aten.equal.default: run_on_values,
    aten.index.Tensor: index,
    aten.masked_select.default: masked_select,
    aten._embedding_bag.default: embedding_bag,
    aten._ctc_loss.default: by_trial,
    aten.linalg_lstsq.default: by_trial,
    aten.size.default: plain_sizes,
    aten.stride.default: plain_sizes,
    torch.ops.prim.device.default: device_of,
    **dict.fromkeys(
        (
            aten.t_.default,
            aten.transpose_.default,
            aten.squeeze_.default,
            aten.squeeze_.dim,
            aten.squeeze_.dims,
            aten.unsqueeze_.default,
            aten.as_strided_.default,
            aten.swapdims_.default,
            aten.swapaxes_.default,
            aten.detach_.default,
        ),
        change_geometry,
    ),
    **dict.fromkeys(
        (
            aten.resize_.default,
            aten.resize_as_.default,
            aten.set_.source_Tensor,
            aten.set_.source_Storage_storage_offset,
        ),
        refuse,
    ),
}


def constant(mode: FakeMode, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
    """A fake with the known value `tensor`."""
    value = tensor.clone()
    meta = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=META)
    fake = mode.wrap(meta, device)
    mode.make_constant(fake, value)
    return fake


# -- arguments ------------------------------------------------------------------------------------


def result_device(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """The device that a call asks for by its `device` argument, else that of its tensors."""
    given = kwargs.get("device")
    if given is None:
        return common_device(op, args, kwargs)
    device = torch.device(given)
    if device.index is None and device.type not in ("cpu", "meta"):
        return torch.device(device.type, 0)
    return device


def common_device(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """The device that `op` runs on: all tensors agree, but for 0-d tensors on the CPU, which go
    anywhere.
    """
    found: torch.device | None = None
    scalar = False
    for value in flat((*args, *kwargs.values())):
        if not isinstance(value, torch.Tensor):
            continue
        device = value.device
        if found is None or (scalar and device != found):
            found, scalar = device, device.type == "cpu" and value.dim() == 0
        elif device != found and not (device.type == "cpu" and value.dim() == 0):
            if op is aten.copy_.default or op is aten._to_copy.default:
                return found
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {op} found at least "
                f"two devices, {found} and {device}!"
            )
    return found or CPU


def _run_meta_kernel(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Any:
    torch_compat.run_references_without_dynamo()
    kernels = torch_compat.python_kernels() if mode.facts else nullcontext()
    try:
        with kernels:
            metas = op(*mapped(args, _meta_of), **mapped(kwargs, _meta_of))
    except NotImplementedError as error:
        return _run_on_zeros(mode, op, args, kwargs, error)
    written = _written_tensors(op, args, kwargs)
    if not written:
        result = _wrap_results(mode, metas, device)
    else:
        by_meta = {id(tensor.meta_tensor): tensor for tensor in written}
        result = mapped(
            metas,
            lambda meta: by_meta.get(id(meta)) if id(meta) in by_meta else mode.wrap(meta, device),
        )
    mode.follow_constants(op, args, kwargs, result)
    return result


def _run_on_zeros(
    mode: FakeMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failure: Exception
) -> Any:
    """Where torch has no meta kernel for an operator of its own, run that on zeros, to see what it
    gives. Raises: `UnsupportedOperator`, from `failure`, where it is not tried.
    """
    found = result_for_zeros(op, args, kwargs)
    if found is None:
        what = f"torch cannot tell the result's sizes of {op}: {failure}"
        raise UnsupportedOperator(what) from failure
    device = common_device(op, args, kwargs)
    return mapped(found, lambda real: mode.make(geometry_of(real), device))


def _wrap_results(mode: FakeMode, metas: Any, device: torch.device) -> Any:
    def wrap(meta: torch.Tensor) -> FakeTensor:
        if meta.layout is not torch.strided:
            raise UnsupportedOperator(f"a result of layout {meta.layout} cannot be traced")
        return mode.wrap(meta, device)

    return mapped(metas, wrap)


def _written_tensors(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among the arguments that the operator writes to."""
    names = torch_compat.written_arguments(op)
    if not names:
        return []
    arguments = torch_compat.operator_arguments(op)
    values = [
        args[position] if position < len(args) else kwargs.get(argument.name)
        for position, argument in enumerate(arguments)
        if argument.name in names
    ]
    return [value for value in flat(values) if isinstance(value, torch.Tensor)]


def _faked(
    mode: FakeMode, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with real tensors replaced by their fakes; unchanged in the common case of
    none.
    """
    for value in flat((*args, *kwargs.values())):
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return mapped(args, mode.fake), mapped(kwargs, mode.fake)
    return args, kwargs


def _known_value(fake: FakeTensor, what: str) -> torch.Tensor:
    if fake.constant is None:
        raise DataDependent(f"Tensor.{what}() needs the values of a tensor")
    return fake.constant


def _meta_of(tensor: Any) -> torch.Tensor:
    return tensor.meta_tensor  # type: ignore[no-any-return]


def _constant_of(tensor: Any) -> torch.Tensor:
    return tensor.constant  # type: ignore[no-any-return]
