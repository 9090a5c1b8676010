"""The calls that eager's kernels refuse though torch's meta kernels do not: asked of the kernels
for the CPU, on zeros, once for each operator with such arguments, also of tensors on a GPU.

    aten.mul_.Tensor(bool[8], 0.5)    meta gives bool[8]    the kernel: result type Float can't be
                                                            cast to the desired output type Bool

Zeros may be refused for their values; ones then mostly are not. Where a call is large it is tried
with smaller tensors, unless it lists integers that may be lengths in larger ones: not every kernel
checks these. Smaller tensors may be refused for their sizes: there, and where neither zeros nor
ones are good, a call counts as refused if it is taken with other types. Kernels that trust places
and lengths are asked on tensors of the call's own sizes alone, with numbers that lead nowhere else
(`made_up` in the table of operators): what else they refuse, they refuse when the program runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.fake.known_values import known_value
from fusewright.fake.tensor import FakeTensor
from fusewright.fake_rules.arguments import flat
from fusewright.fake_rules.geometry import extent
from fusewright.operators import facts, trusts_integers
from fusewright.records import record
from fusewright.symbolic.nodes import SYMBOLIC
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

SMALL: Final = 1 << 12
"""Elements up to which tensors of the call's own sizes are made."""

OVERLAPPING: Final = 1 << 20
"""Elements from the beginning of their storages up to which tensors that share one are made."""

_OVERLAP: Final = "refer to a single memory location"

LARGEST_SIZE: Final = 8
"""The largest size of tensors that stand for larger ones."""

SIZE_OF_DATA: Final = 4
"""Stands for a size that depends on data."""

VARYING_NUMBER: Final = 0.5
"""Stands for a float that varies."""

USUAL_FLOATS: Final = frozenset({torch.float32, torch.float64})
USUAL: Final = USUAL_FLOATS | {torch.int64, torch.bool}
"""Types for which the rules of geometry know what is refused; for others eager is asked."""

_TAKEN: Final[set[Any]] = set()
"""The keys of trials that eager was seen to take, with whether tensors are on the CPU."""


def is_usual(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether each tensor of a call is of a usual type, and floats are all of one."""
    values = flat((*args, *kwargs.values()) if kwargs else args)
    dtypes = {value.dtype for value in values if isinstance(value, Tensor)}
    return dtypes <= USUAL and not dtypes >= USUAL_FLOATS


def refusal(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any = ()
) -> Exception | None:
    """The exception that eager's kernel for the CPU raises, whatever values are in tensors; None
    where it takes the call, or one for the tensors' device may.

    `args`, `kwargs`: of fakes and numbers; sizes may be symbolic. `results`: what the call gives.
    """
    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, Tensor)]
    if op.namespace != "aten":
        return None
    is_on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    if op is aten.batch_norm_backward.default and not is_on_cpu:
        return None  # It is given what forward has saved, in another type there.
    outputs = [value for value in flat((results,)) if isinstance(value, Tensor)]
    is_small = all(_count(tensor) <= SMALL for tensor in (*tensors, *outputs))
    may_cut = tensors and not (trusts_integers(op) or _lists_lengths((*args, *kwargs.values())))
    if not (is_small or may_cut):
        return None
    trial = EagerTrial(op, args, kwargs, None if is_small else LARGEST_SIZE)
    key = (is_on_cpu, trial.key())
    if key in _TAKEN:
        return None
    error = trial.error()
    if error is not None and not (is_on_cpu or _holds_on_any_device(trial, error)):
        error = None
    is_certain = is_small and not facts(op).refuses_values
    if error is not None and (is_certain or _is_for_types(trial)):
        return error
    _TAKEN.add(key)
    return None


_OF_THE_CPU: Final = re.compile(r"CPU|MKL|mkldnn|histogram_cpu|for 'Bool'|Could not run")
_LACKS_HALF_TYPE: Final = re.compile(r"not implemented for '(Half|BFloat16)'")
"""In the words of what kernels for the CPU refuse, and those for GPUs may take."""


def _holds_on_any_device(trial: EagerTrial, error: Exception) -> bool:
    """Whether kernels for GPUs refuse a call too which those for the CPU refuse so: they have half
    types and bools where those lack them, but check alike which types go together.
    """
    if _OF_THE_CPU.search(str(error)):
        return False
    if not _LACKS_HALF_TYPE.search(str(error)):
        return True
    return isinstance(trial.error(WITH_INDICES), NotImplementedError)


def refusal_of_overlap(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """The exception that eager's kernels raise on any device for a call that writes to elements of
    another argument; None where they take it, or are not asked as tensors are too large.
    """
    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, FakeTensor)]
    if op.namespace != "aten" or any(map(_reaches_far, tensors)):
        return None
    error = EagerTrial(op, args, kwargs, None, room=OVERLAPPING).error()
    return error if error is not None and _OVERLAP in str(error) else None


def _reaches_far(tensor: FakeTensor) -> bool:
    """Whether a tensor's memory has no room in that of a trial."""
    size, stride = (list(map(usual_number, numbers)) for numbers in (tensor.shape, tensor.stride()))
    return extent(size, stride, usual_number(tensor.storage_offset())) > OVERLAPPING


def usual_number(value: Any) -> Any:
    """A number in place of one that varies: the one seen when compiling, where it is known."""
    match value:
        case torch.SymInt():
            hint = value.node.hint
            return SIZE_OF_DATA if hint is None else hint
        case torch.SymFloat():
            return VARYING_NUMBER
        case torch.SymBool():
            return True
        case _:
            return value


def _count(tensor: Tensor) -> int:
    return math.prod(map(usual_number, tensor.shape))


def _lists_lengths(values: Sequence[Any]) -> bool:
    """Whether there is a list of integers among the arguments of a call, one of which no size of
    the tensors that stand for large ones reaches.
    """
    lists = (value for value in values if isinstance(value, (list, tuple)))
    return any(
        isinstance(usual_number(item), int) and usual_number(item) > LARGEST_SIZE
        for items in lists
        for item in items
    )


@record
class Substitution:
    """Which types a call is tried with instead of its own."""

    dtype: torch.dtype
    """Stands for each type that does not stay."""

    kept: frozenset[torch.dtype] = frozenset()
    """The types that stay."""

    of_numbers: bool = False
    """Whether truth values among the numbers become floats."""

    def of(self, dtype: torch.dtype) -> torch.dtype:
        """The type that stands for `dtype`."""
        return dtype if dtype in self.kept else self.dtype


WITH_INDICES: Final = Substitution(torch.float32, kept=frozenset({torch.int64, torch.bool}))
"""Indices and masks stay what they are."""

SUBSTITUTIONS: Final = (
    Substitution(torch.float32),
    WITH_INDICES,
    Substitution(torch.float32, of_numbers=True),
    Substitution(torch.int64),
    Substitution(torch.bool),
    Substitution(torch.complex64),
)
"""A call that is taken with one of these was refused for its types."""


def _is_for_types(trial: EagerTrial) -> bool:
    """Whether the call of `trial` is taken with other types: where values matter, of those that are
    no indices.
    """
    tried = (WITH_INDICES,) if facts(trial.op).refuses_values else SUBSTITUTIONS
    return any(trial.error(types) is None for types in tried)


@record
class EagerTrial:
    """A call on real tensors of one number, for its exception."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    limit: int | None
    """The largest size of a dimension, None for any."""

    plain: Callable[[Any], Any] = usual_number
    """Gives the number that stands for one that varies, and any other argument as it is."""

    room: int = SMALL
    """Elements of a memory that tensors of one storage share."""

    def key(self) -> tuple[Any, ...]:
        """The operator, and the part of its arguments that its kernel may refuse them for."""
        return (self.op, self.limit, self._key(self.args), self._key(self.kwargs))

    def _key(self, value: Any) -> Any:
        match value:
            case Tensor():
                return (value.dtype, tuple(self._size(value)))
            case list() | tuple():
                return tuple([self._key(item) for item in value])
            case dict():
                return tuple([(name, self._key(item)) for name, item in value.items()])
            case _ if isinstance(value, SYMBOLIC):
                return (type(value), self.plain(value))
            case _:
                return (type(value), value)

    def _size(self, tensor: Tensor) -> list[int]:
        """The sizes of the real tensor that stands for one of the call."""
        size = map(self.plain, tensor.shape)
        return list(size) if self.limit is None else [min(count, self.limit) for count in size]

    def error(self, types: Substitution | None = None) -> Exception | None:
        """The exception that zeros raise, where ones raise one too; None also where the operator
        may get neither.
        """
        first = None
        for fill in facts(self.op).made_up:
            error = self.error_for(fill, types)
            if error is None:
                return None
            first = first or error
        return first

    def error_for(self, fill: int, types: Substitution | None) -> Exception | None:
        """The exception that tensors filled with a number raise."""
        memory: dict[Any, Tensor] = {}

        def real(value: Any) -> Any:
            match value:
                case FakeTensor():
                    return self._real(value, fill, types, memory)
                case list() | tuple():
                    return type(value)([real(item) for item in value])
                case torch.dtype() if types is not None:
                    return types.of(value)
                case torch.device():
                    return torch.device("cpu")
                case bool() if types is not None and types.of_numbers:
                    return float(value)
                case _:
                    return self.plain(value)

        args = [real(value) for value in self.args]
        kwargs = {name: real(value) for name, value in self.kwargs.items()}
        is_random = torch.Tag.nondeterministic_seeded in self.op.tags
        state = torch.get_rng_state() if is_random else None
        try:
            with torch_compat.without_torch_dispatch(), torch.no_grad():
                self.op(*args, **kwargs)
        except torch.linalg.LinAlgError:  # for the values
            return None
        except Exception as error:
            return error
        finally:
            if state is not None:
                torch.set_rng_state(state)
        return None

    def _real(
        self, fake: FakeTensor, fill: int, types: Substitution | None, memory: dict[Any, Tensor]
    ) -> Tensor:
        """A real tensor in place of a fake: with its own values where they are known; in `memory`,
        by storage and type, where it is as large as the fake.
        """
        dtype = fake.dtype if types is None else types.of(fake.dtype)
        value = known_value(fake)
        if value is not None:
            return value.to(dtype, copy=True)
        size = self._size(fake)
        if self.limit is not None:
            return torch.full(size, fill, dtype=dtype, device="cpu")
        stride = list(map(self.plain, fake.stride()))
        offset = self.plain(fake.storage_offset())
        length = extent(size, stride, offset)
        if length > self.room:
            return torch.full((extent(size, stride),), fill, dtype=dtype, device="cpu").as_strided(
                size, stride
            )
        key = (torch_compat.storage_object_key(fake.meta_tensor.untyped_storage()), dtype)
        filled = memory.setdefault(key, torch.full((self.room,), fill, dtype=dtype, device="cpu"))
        return filled.as_strided(size, stride, offset)
