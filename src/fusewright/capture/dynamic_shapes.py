"""The user's statements on the sizes of arguments: `compile(…, dynamic_shapes=…)`.

    batch = torch.export.Dim("batch", max=64)
    dynamic_shapes={"x": {0: batch}, "pairs": [(batch, 3), None], "n": Dim.AUTO}

It says of each argument what `torch.export.export` takes: of a tensor, by dimension or for all of
them in order; of a list or dict of arguments, item by item. A size that it does not mention stays
as it is.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from fusewright.capture.sources import DictItemSource, ItemSource, LocalSource, Source
from fusewright.errors import WrongShape, did_you_mean
from fusewright.records import record
from fusewright.torch_compat.dimensions import dimension_spec


class SizePolicy(enum.Enum):
    """The three ways to compile for a size."""

    STATIC = "the code is for this size alone"
    DYNAMIC = "the code is for any size, or there is none"
    AUTO = "it is found out whether the size varies"


@record
class Rule:
    """The user's rule for one size, or for one integer."""

    kind: SizePolicy
    name: str | None = None
    """Sizes of one name are equal."""

    minimum: int | None = None
    maximum: int | None = None

    def check(self, size: int, place: str) -> None:
        """Raises: WrongShape, where the rule asks for another size."""
        if self.minimum is not None and size < self.minimum:
            raise WrongShape(f"{place} is {size}, and dynamic_shapes says at least {self.minimum}")
        if self.maximum is not None and size > self.maximum:
            raise WrongShape(f"{place} is {size}, and dynamic_shapes says at most {self.maximum}")


STATIC: Final = Rule(SizePolicy.STATIC)


def _rule(spec: Any) -> Rule:
    """Raises: TypeError for what says nothing of a size; ValueError for what is not available."""
    if spec is None:
        return STATIC
    if type(spec) is int:
        return Rule(SizePolicy.STATIC, None, spec, spec)
    dimension = dimension_spec(spec)
    if dimension is None:
        raise TypeError(
            "dynamic_shapes says of a size a torch.export.Dim, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC, "
            f"a number or None, not {spec!r}"
        )
    if dimension.kind == "DERIVED":
        raise ValueError(
            f"dynamic_shapes: {spec!r} is computed from another dimension, which is not available; "
            "name a dimension of its own"
        )
    return Rule(SizePolicy[dimension.kind], dimension.name, dimension.minimum, dimension.maximum)


@record
class DynamicShapes:
    """The user's rules for all arguments of one function."""

    by_name: Mapping[str, Any]
    positional: tuple[str, ...]
    """The parameters in order, where the call of a module or another object stands between."""

    rest: str | None
    """The parameter that takes further arguments in order."""

    is_module: bool
    """Whether arguments are read from `args` and `kwargs` of that call."""

    @classmethod
    def of(cls, spec: Any, target: Callable[..., Any], *, is_module: bool) -> DynamicShapes:
        """Raises: TypeError and ValueError, for a spec that does not fit this function."""
        parameters = inspect.signature(target).parameters
        kinds = inspect.Parameter
        rest = next((n for n, p in parameters.items() if p.kind is kinds.VAR_POSITIONAL), None)
        in_order = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        positional = tuple(
            name for name, parameter in parameters.items() if parameter.kind in in_order
        )
        by_name = _by_name(spec, positional)
        for name, value in by_name.items():
            if name not in parameters:
                raise ValueError(
                    f"dynamic_shapes: no parameter {name!r}; {did_you_mean(str(name), parameters)}"
                )
            for leaf in _leaves(value):
                _rule(leaf)
        return cls(by_name, positional, rest, is_module)

    def of_tensor(self, source: Source, rank: int) -> dict[int, Rule]:
        """The rules for the sizes of a tensor, by dimension. Raises: WrongShape, where it has other
        dimensions than the spec.
        """
        spec = self._at(source)
        if spec is None:
            return {}
        if isinstance(spec, Mapping):
            by_dimension = {dim + rank if dim < 0 else dim: rule for dim, rule in spec.items()}
        elif isinstance(spec, Sequence):
            by_dimension = dict(enumerate(spec))
        else:
            raise WrongShape(f"{source} is a tensor, of which dynamic_shapes says {spec!r}")
        whole = isinstance(spec, Mapping) or len(spec) == rank
        if not whole or any(not 0 <= dim < rank for dim in by_dimension):
            raise WrongShape(
                f"{source} has {rank} dimensions, of which dynamic_shapes says {spec!r}"
            )
        return {dim: _rule(rule) for dim, rule in by_dimension.items()}

    def of_number(self, source: Source) -> Rule:
        """The rule for an integer."""
        spec = self._at(source)
        if isinstance(spec, Mapping | Sequence):
            raise WrongShape(f"{source} is a number, of which dynamic_shapes says {spec!r}")
        return _rule(spec)

    def _at(self, source: Source) -> Any:
        """The part of `dynamic_shapes` that is about a source; None: there is none."""
        match source:
            case LocalSource(name=name):
                return self.by_name.get(name)
            case ItemSource(origin=LocalSource(name="args"), index=index) if self.is_module:
                if index < len(self.positional):
                    return self.by_name.get(self.positional[index])
                rest = self.by_name.get(self.rest or "") or ()
                return _item(rest, index - len(self.positional))
            case DictItemSource(origin=LocalSource(name="kwargs"), key=key) if self.is_module:
                return self.by_name.get(key)
            case ItemSource(origin=origin, index=key) | DictItemSource(origin=origin, key=key):
                return _item(self._at(origin), key)
        return None


def _by_name(spec: Any, positional: Sequence[str]) -> dict[str, Any]:
    if isinstance(spec, Mapping):
        return dict(spec)
    if not isinstance(spec, list | tuple):
        raise TypeError(
            "dynamic_shapes is a dictionary by parameter, or a tuple in the order of parameters, "
            f"not {spec!r}"
        )
    if len(spec) > len(positional):
        raise ValueError(
            f"dynamic_shapes says something of {len(spec)} parameters, and there are "
            f"{len(positional)}: {', '.join(positional)}"
        )
    return dict(zip(positional, spec, strict=False))


def _leaves(spec: Any) -> Iterator[Any]:
    if isinstance(spec, Mapping):
        for part in spec.values():
            yield from _leaves(part)
    elif isinstance(spec, list | tuple):
        for part in spec:
            yield from _leaves(part)
    else:
        yield spec


def _item(spec: Any, key: Any) -> Any:
    """The part that is about an item of a container; None: there is none."""
    if isinstance(spec, Mapping):
        return spec.get(key)
    in_order = isinstance(spec, list | tuple) and isinstance(key, int) and key < len(spec)
    return spec[key] if in_order else None
