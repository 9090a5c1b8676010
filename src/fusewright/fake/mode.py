"""The mode under which operators run on fakes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.config import OfData
from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.fake.handlers import HANDLERS, Handler, NeedsPlainSizes, choose_handler
from fusewright.fake.history import History
from fusewright.fake.known_values import known_value
from fusewright.fake.least_sizes import require_least_sizes
from fusewright.fake.tensor import META, FakeTensor, Writes
from fusewright.fake_rules import Geometry
from fusewright.fake_rules.geometry import extent
from fusewright.formulas import When, formula_of_call, written_out
from fusewright.ir.index import Index
from fusewright.symbolic.facts import ShapeFacts
from fusewright.torch_compat import TorchDispatchMode
from fusewright.user_kernels import UserKernelCall


class SymbolsBegin(Exception):
    """An operator inside of a call gives the first symbol: the call is to be made again, as one on
    symbols.
    """


def needs_plain_sizes(function: Any, args: Sequence[Any]) -> bool:
    """Whether torch would read symbolic sizes as plain numbers in a call."""
    if not any(function is reader for reader in torch_compat.READS_SYMBOLS_AS_NUMBERS):
        return False
    return any(isinstance(argument, torch.Tensor) and _is_on_gpu(argument) for argument in args)


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == torch_compat.cuda.TYPE


def plain(value: Any) -> Any:
    """An argument with plain sizes, which become constants of the program."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


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
        self.of_data = OfData(True, True)
        """Which of them, where any."""

        self.integers_read: list[Index] = []
        """The integers in tensors that calls have asked for, as symbols."""

        self.later: ShapeFacts | None = None
        """The facts to use from the first size on that depends on values."""

        self._may_begin_again = False
        """Whether `SymbolsBegin` would be caught."""

        self._handlers = HANDLERS[facts is not None]
        self._fakes: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.writes = Writes()
        """The writes to memory of fakes."""

        self.refuses_plain_sizes = False
        """Whether C++ code that takes no symbolic sizes is told so."""

        self.asks_eager = False
        """Whether operators raise what eager's kernels raise for the types of their arguments."""

        self.refusal: Exception | None = None
        """The exception of the operator that eager was last asked about."""

        self.is_random = False
        """Whether an operator was run that draws random numbers."""

        self.meets_gpu = False
        """Whether there was a fake on a GPU: what `cuda` means hangs on the current GPU then, also
        where torch has found that out by itself.
        """

    def use_facts(self, facts: ShapeFacts) -> None:
        """Expect symbolic sizes from here on."""
        self.facts, self._handlers = facts, HANDLERS[True]

    def allow_of_data(self, facts: ShapeFacts, of_data: OfData) -> None:
        """Give symbols to what depends on values, known by these facts. Until there is one, sizes
        are numbers.
        """
        self.allows_unknown_sizes, self.of_data, self.later = True, of_data, facts

    def begin_symbols(self) -> ShapeFacts:
        """The facts for a symbol that is to be made, maybe the first."""
        if self.facts is None:
            self.use_facts(self.later or ShapeFacts())
            if self._may_begin_again:
                raise SymbolsBegin
        assert self.facts is not None
        return self.facts

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.dispatch(op, args, kwargs or {})

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`function(*args, **kwargs)`, which runs operators on fakes in this mode.

        Where sizes are symbolic, and a composite operator in C++ takes none, the call is written
        out, or made again with torch's Python implementations of such operators. A float that
        varies is kept, where the function is known to compute with it only. UnsupportedOperator:
        there is no other way than to know the sizes.
        """
        other = formula_of_call(function, When.ANY_CALL)
        result = NotImplemented if other is None else other(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if self.facts is None:
            self._may_begin_again = self.later is not None
            try:
                return function(*args, **kwargs)
            except SymbolsBegin:
                pass
            finally:
                self._may_begin_again = False
        if needs_plain_sizes(function, args):
            args = [plain(argument) for argument in args]
            kwargs = {name: plain(argument) for name, argument in kwargs.items()}
        written = written_out(function, args, kwargs)
        result = NotImplemented if written is None else self._call(written, args, kwargs)
        return self._call(function, args, kwargs) if result is NotImplemented else result

    def _call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.refuses_plain_sizes = True
        try:
            return function(*args, **kwargs)
        except NeedsPlainSizes:
            pass
        except RuntimeError as error:
            if not torch_compat.is_symbolic_refusal(error):
                raise
        finally:
            self.refuses_plain_sizes = False
        with torch_compat.python_kernels():
            written = formula_of_call(function, When.VARYING_SIZE)
            result = NotImplemented if written is None else written(*args, **kwargs)
            if result is not NotImplemented:
                return result
            try:
                return function(*args, **kwargs)
            except RuntimeError as error:
                if not torch_compat.is_symbolic_refusal(error):
                    raise
                name = getattr(function, "__name__", repr(function))
                raise UnsupportedOperator(f"{name} takes no symbolic sizes") from error

    # -- real tensors -----------------------------------------------------------------------------

    def fake(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake that stands for `tensor`: always the same one for the same tensor, aliasing
        where they alias.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        entry = self._fakes.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
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
        if tensor.is_quantized or tensor.is_nested:
            kind = "quantised" if tensor.is_quantized else "nested"
            raise UnsupportedOperator(f"a {kind} tensor cannot be traced")
        if tensor.layout is not torch.strided:
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
            self._meet(tensor.device)
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
                return History.apply(fake)  # type: ignore[no-untyped-call, no-any-return]
        return fake

    def _meta_storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        key = torch_compat.storage_object_key(storage)
        pair = self._storages.get(key)
        if pair is None:
            # The real storage is kept alive with its stand-in, so that its key is not used again
            # meanwhile.
            size = storage.nbytes()  # of another's fake, symbolic perhaps
            pair = (storage, torch.UntypedStorage(size if type(size) is int else 0, device="meta"))
            self._storages[key] = pair
        return pair[1]

    def value_of(self, fake: FakeTensor, method: str) -> torch.Tensor:
        """The value of a fake for a method that asks for it. DataDependent: it is not known."""
        value = known_value(fake)
        if value is None:
            raise DataDependent(f"Tensor.{method}() needs the values of a tensor")
        return value

    # -- operators --------------------------------------------------------------------------------

    def dispatch(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `op` on fakes (real tensors among the arguments are faked first); give fakes.

        Raises `DataDependent` when the result needs values, `UnsupportedOperator` when torch cannot
        say its geometry.
        """
        handler = self._handlers.get(op)
        if handler is None:
            handler = self._handlers[op] = choose_handler(op, self.facts is not None)
        if not self.allows_unknown_sizes or self.facts is None:
            return self._run(handler, op, args, kwargs)
        if self.asks_eager and self.facts.of_call:
            require_least_sizes(op, args, kwargs, self.facts)
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
        if meta.is_quantized:
            raise UnsupportedOperator("a quantised tensor cannot be traced")
        self._meet(device)
        return FakeTensor(meta, device, self, False, storage_bytes)

    def note_user_kernel(self, call: UserKernelCall, operands: Sequence[Any]) -> None:
        """Take note of a launch on fakes: it writes to memory, and gives nothing."""
        written = [torch_compat.unwrapped(operands[number]) for number in call.written]
        self.writes.note(fake.meta_tensor for fake in written if isinstance(fake, FakeTensor))

    def _meet(self, device: torch.device) -> None:
        self.meets_gpu = self.meets_gpu or device.type == torch_compat.cuda.TYPE

    def make(self, geometry: Geometry, device: torch.device) -> FakeTensor:
        """A fake of this geometry in a storage of its own."""
        if self.facts is None or not geometry.is_symbolic:
            return self.wrap(geometry.allocate(), device)
        with torch_compat.without_torch_dispatch():  # whoever calls may be in a mode that records
            memory = torch.empty((0,), dtype=geometry.dtype, device=META)
            meta = memory.as_strided(geometry.size, geometry.stride)
        return self.wrap(meta, device, extent(geometry.size, geometry.stride) * meta.itemsize)
