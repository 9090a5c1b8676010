"""torch's operator declarations as records, and the groups of variants that they form.

Parsing is torchgen's, which comes with torch; nothing else of it is used, and only in this file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path

import torchgen
from torchgen import model
from torchgen.gen import parse_native_yaml

from fusewright.context import COLLECTOR_PAUSE
from fusewright.records import record

FACTORY_OPTIONS = ("dtype", "layout", "device", "pin_memory")
"""Arguments that say what tensor a factory makes; an out variant reads them off its `out`."""


class Kind(Enum):
    """How an operator hands its result over."""

    FUNCTIONAL = "functional"
    """`add.Tensor`: returns new tensors, or views."""

    INPLACE = "in-place"
    """`add_.Tensor`: writes to `self` and returns it."""

    OUT = "out"
    """`add.out`: writes to tensors that the caller passes by keyword."""

    MUTABLE = "mutable"
    """Writes to arguments other than `self` and returns further results."""


@record
class Type:
    """A type of the declaration language, such as `Tensor?[]` or `int[2]?`."""

    base: str
    """`Tensor`, `Scalar`, `int`, `SymInt`, `float`, `bool`, `str`, `ScalarType`, …"""

    is_list: bool = False
    is_optional: bool = False
    """The value as a whole may be None."""

    holds_optional: bool = False
    """Elements of the list may be None."""

    length: int | None = None
    """The declared length of a list."""

    @property
    def is_tensor(self) -> bool:
        """A tensor, an optional tensor, or a list of either."""
        return self.base == "Tensor"


@record
class Parameter:
    """One argument of an operator."""

    name: str
    type: Type
    default: str | None
    """The default as declared: `1`, `None`, `Mean`, `[]`; None where the argument must be given."""

    keyword_only: bool
    written: bool
    """The operator writes to this tensor."""


@record
class Result:
    """One value that an operator returns."""

    type: Type
    written: bool
    """Whether the result is an argument that was written to."""

    view: bool
    """Whether the result shares memory with an argument that is not written to."""


@record(kw_only=True)
class Operator:
    """One declared operator: a line of torch's `native_functions.yaml`, or a variant that torch
    derives from one.
    """

    name: str
    """The name with its overload, without namespace: `add.Tensor`."""

    base: str
    """The name without overload and without the mark of in-place operators: `add`."""

    kind: Kind
    schema: str
    """The declaration's text."""

    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    root: str
    """The headers of this operator are `ATen/ops/<root>_ops.h` and the like."""

    structured: str | None
    """The out variant whose meta function checks this operator, for structured operators."""

    iterates: bool
    """Its meta function is a tensor iterator's: results convert to the type of what is written."""

    composite: bool
    """torch decomposes it above autograd, whatever the device (`CompositeImplicitAutograd`)."""

    universal: bool
    """torch has a kernel for it that serves every device, by way of other operators
    (`CompositeExplicitAutograd`).
    """

    derived: bool
    """Not declared by hand: torch makes it from another variant of its group (`autogen`)."""

    tags: frozenset[str]
    same_device: bool
    """All tensors must be on one device; false where the operator looks after this itself."""

    writes_to_const: bool
    """Whether it writes to `const at::Tensor&` in C++, as operators that resize are declared."""

    line: int
    """Where in `native_functions.yaml` it stands."""

    @property
    def symbol(self) -> str:
        """The name of its kernel, in C++ and in Python: `add_Tensor`, `add__Tensor`, `add_out`."""
        return self.name.replace(".", "_")

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The arguments that it writes to, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.written)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The arguments of an out variant without its outs; of others, all."""
        if self.kind is Kind.OUT:
            return tuple(parameter for parameter in self.parameters if not parameter.written)
        return self.parameters

    @property
    def castable(self) -> bool:
        """Whether a result is converted to the dtype of what is written to, as pointwise operators
        do; of others, the dtype must be the result's.
        """
        if self.name in _EXACT:
            return False
        return self.iterates or "pointwise" in self.tags or self.name in _CONVERTING

    @property
    def is_view(self) -> bool:
        """Whether a result shares memory with an argument."""
        return self.name in _UNDECLARED_VIEWS or any(result.view for result in self.results)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONVERTING = _names(
    """
    _chunk_cat.out _fft_c2c.out _fft_c2r.out _fft_r2c.out addr.out cat.out cholesky.out
    cholesky_inverse.out cholesky_solve.out floor_divide.out floor_divide_.Tensor geqrf.a
    linalg_householder_product.out linalg_lstsq.out linalg_pinv.atol_rtol_tensor_out
    logsumexp.out max.unary_out min.unary_out stack.out std.correction_out var.correction_out
    """
)
"""Operators that convert their result though nothing in their declaration says so."""

_EXACT = _names(
    """
    frexp.Tensor_out heaviside.out heaviside_ isneginf.out isposinf.out nan_to_num.out
    signbit.out
    """
)
"""Pointwise operators that do not convert."""

_UNDECLARED_VIEWS = _names("_unsafe_view unsafe_split.Tensor unsafe_split_with_sizes lift")
"""Operators that share memory with an argument though autograd is not to know it."""


@record
class Group:
    """Operators that compute the same, each handing its result over in its own way."""

    members: Mapping[Kind, Operator]

    @property
    def name(self) -> str:
        """The name of its first member, functional if there is one."""
        return next(iter(self.members.values())).name

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.members.values())


@record
class Declarations:
    """All operators that one version of torch declares."""

    file: Path
    """The `native_functions.yaml` that was read."""

    operators: Mapping[str, Operator]
    """By name with overload. Those written down in the file stand first, in its order."""

    groups: tuple[Group, ...]
    group_of: Mapping[str, Group]
    """By the name of an operator."""


@functools.cache
def read_declarations() -> Declarations:
    """The declarations that come with the installed torch. Takes about half a second, once."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    file = folder / "native_functions.yaml"
    with COLLECTOR_PAUSE:  # parsing makes a million objects that all live: half of the time
        functions = parse_native_yaml(str(file), str(folder / "tags.yaml")).native_functions
        iterators = {str(f.func.name) for f in functions if f.structured and f.structured_inherits}
        operators = {str(f.func.name): _operator(f, iterators) for f in functions}
        groups = tuple(group_operators(operators.values()))
        group_of = {operator.name: group for group in groups for operator in group}
    return Declarations(file, operators, groups, group_of)


def group_operators(operators: Iterable[Operator]) -> list[Group]:
    """Put variants together: equal base names, and equal arguments apart from outs, factory
    options, order, and what is written.
    """
    groups: dict[tuple[object, ...], dict[Kind, Operator]] = {}
    for operator in operators:
        name = operator.base.removesuffix("_functional")
        arguments = frozenset(
            (parameter.name, parameter.type)
            for parameter in operator.inputs
            if parameter.name not in FACTORY_OPTIONS
        )
        key: tuple[object, ...] = (name, arguments)
        while operator.kind in groups.setdefault(key, {}):  # a second one of its kind stands alone
            key = (*key, operator.kind)
        groups[key][operator.kind] = operator
    return [
        Group({kind: members[kind] for kind in Kind if kind in members})
        for members in groups.values()
    ]


def _operator(function: model.NativeFunction, iterators: set[str]) -> Operator:
    schema = function.func
    name = str(schema.name)
    structured = name if function.structured else None
    if function.structured_delegate is not None:
        structured = str(function.structured_delegate)
    return Operator(
        name=name,
        base=schema.name.name.base,
        kind=_kind(schema),
        schema=str(schema),
        parameters=tuple(_parameters(schema)),
        results=tuple(
            Result(
                _type(result.type),
                written=result.is_write,
                view=result.annotation is not None and not result.is_write,
            )
            for result in schema.returns
        ),
        root=str(function.root_name),
        structured=structured,
        iterates=structured in iterators,
        composite=function.has_composite_implicit_autograd_kernel,
        universal=function.has_composite_explicit_autograd_kernel
        or function.has_composite_explicit_autograd_non_functional_kernel,
        derived="generated" in function.tags,
        tags=frozenset(function.tags),
        same_device=function.device_check is model.DeviceCheckType.ExactSame,
        writes_to_const=function.use_const_ref_for_mutable_tensors,
        line=function.loc.line,
    )


def _kind(schema: model.FunctionSchema) -> Kind:
    match schema.kind():
        case model.SchemaKind.functional:
            return Kind.FUNCTIONAL
        case model.SchemaKind.inplace:
            return Kind.INPLACE
        case model.SchemaKind.out:
            return Kind.OUT
        case _:
            return Kind.MUTABLE


def _parameters(schema: model.FunctionSchema) -> Iterator[Parameter]:
    positional = {argument.name for argument in schema.arguments.flat_positional}
    for argument in schema.schema_order_arguments():
        yield Parameter(
            name=argument.name,
            type=_type(argument.type),
            default=argument.default,
            keyword_only=argument.name not in positional,
            written=argument.is_write,
        )


_TYPE = re.compile(r"(?P<base>\w+)(?P<inner>\?)?(?P<list>\[(?P<length>\d*)\])?(?P<outer>\?)?$")


def _type(declared: model.Type) -> Type:
    match = _TYPE.match(str(declared))
    if match is None:  # a custom class
        return Type(str(declared))
    is_list = match["list"] is not None
    return Type(
        base=match["base"],
        is_list=is_list,
        is_optional=(match["outer"] if is_list else match["inner"]) is not None,
        holds_optional=is_list and match["inner"] is not None,
        length=int(match["length"]) if match["length"] else None,
    )
