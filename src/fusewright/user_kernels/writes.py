"""The arguments in whose memory a Triton kernel writes, by its source.

    def add(x, y, out, n, BLOCK):
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + place, tl.load(x + place) + tl.load(y + place), place < n)
 ->
    stores: {out, BLOCK}

Each value stands for the parameters that its address may be made of: those of all that it is
computed from, but nothing where it was loaded. An assignment only ever adds to a variable, so that
the order of statements does not matter. The analysis reads the kernel as it is written: a branch
that constants rule out counts, too.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from fusewright.records import field, record, replace

Parameters = frozenset[str]
NOTHING: Final[Parameters] = frozenset()

_STORES: Final = frozenset(
    {"store", "scatter", "store_tensor_descriptor", "atomic_add", "atomic_max", "atomic_min"}
    | {"atomic_and", "atomic_or", "atomic_xor", "atomic_xchg", "atomic_cas"}
)
"""Functions of Triton, and methods of descriptors, that write where their first operand points."""

_LOADS: Final = frozenset({"load", "gather", "load_tensor_descriptor"})
"""Functions whose results are no addresses that are known."""

_PRINTS: Final = frozenset({"device_print", "device_assert", "print", "inline_asm_elementwise"})
"""Functions that do something beside their results."""

_COMBINES: Final = frozenset({"reduce", "associative_scan"})
"""Functions that are given a function of values, which cannot write."""


@record
class Helper:
    """A function of the program's that a kernel calls: `owner` finds it under a global name."""

    owner: Any
    name: str
    kernel: Any


@record
class KernelWrites:
    """The effects of one kernel, or of a function that it calls, by names of its parameters."""

    stores: frozenset[Parameters] = frozenset()
    """For each place that writes: the parameters of which its address may be made."""

    result: Parameters = NOTHING
    """The parameters of which what it returns may be made."""

    has_effect: bool = False
    """Whether it prints, asserts or the like."""

    helpers: tuple[Helper, ...] = ()
    is_known: bool = True
    """Whether its source was there, and is of a kind that is understood."""

    follows_addresses: bool = False
    """Whether it makes addresses of numbers, and so may touch any memory."""


_UNKNOWN: Final = KernelWrites(has_effect=True, is_known=False)
_KNOWN: weakref.WeakKeyDictionary[FunctionType, KernelWrites] = weakref.WeakKeyDictionary()
"""By function of a kernel, what was found; it holds while its helpers are the same."""


def python_function(kernel: Any) -> FunctionType | None:
    """The function that was decorated; None where `kernel` is no kernel of Triton's."""
    seen = 0
    while hasattr(kernel, "fn") and seen < 8:
        kernel, seen = kernel.fn, seen + 1
    return kernel if seen and isinstance(kernel, FunctionType) else None


def kernel_writes(kernel: Any) -> KernelWrites:
    """The writes of a kernel."""
    function = python_function(kernel)
    return _UNKNOWN if function is None else _writes_of(function, ())


def _writes_of(function: FunctionType, around: tuple[FunctionType, ...]) -> KernelWrites:
    """The writes of a function; `around` are those whose calls led to it."""
    if function in around:
        return _UNKNOWN
    known = _KNOWN.get(function)
    if known is not None and all(
        _variable(helper.owner, helper.name) is helper.kernel for helper in known.helpers
    ):
        return known
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return _UNKNOWN
    if not isinstance(tree, ast.FunctionDef):
        return _UNKNOWN
    found = _Analysis(function, (*around, function)).run(tree)
    if not around:
        _KNOWN[function] = found
    return found


_MISSING: Final = object()


def _variable(function: FunctionType, name: str) -> Any:
    """The object of a variable outside of a function."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:
            return _MISSING
    return function.__globals__.get(name, vars(builtins).get(name, _MISSING))


class _Misunderstood(Exception):
    """The source has a form that no kernel should have."""


class _FollowsAddresses(Exception):
    """A number becomes an address."""


@record(frozen=False, eq=False)
class _Analysis:
    """The analysis of one function."""

    function: Any
    around: tuple[FunctionType, ...]
    variables: dict[str, Parameters] = field(default_factory=dict)
    stores: set[Parameters] = field(default_factory=set)
    result: Parameters = NOTHING
    has_effect: bool = False
    helpers: dict[tuple[str, str], Helper] = field(default_factory=dict)

    def run(self, tree: ast.FunctionDef) -> KernelWrites:
        """Go over the body until nothing is added."""
        arguments = tree.args
        if arguments.vararg is not None or arguments.kwarg is not None:
            return _UNKNOWN
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.variables = {one.arg: frozenset({one.arg}) for one in named}
        before = None
        try:
            while before != (before := (dict(self.variables), len(self.stores), self.result)):
                for statement in tree.body:
                    self._statement(statement)
        except _Misunderstood:
            return _UNKNOWN
        except _FollowsAddresses:
            return replace(_UNKNOWN, follows_addresses=True)
        return KernelWrites(
            stores=frozenset(self.stores),
            result=self.result,
            has_effect=self.has_effect,
            helpers=tuple(self.helpers.values()),
        )

    # Statements -----------------------------------------------------------------------------------

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                made_of = self._value(value)
                for target in targets:
                    self._assign(target, made_of)
            case ast.AugAssign(target=target, value=value):
                self._assign(target, self._value(target) | self._value(value))
            case ast.AnnAssign(target=target, value=value):
                self._assign(target, NOTHING if value is None else self._value(value))
            case ast.For(target=target, iter=iterated):
                self._assign(target, self._value(iterated))
            case ast.With(items=items):
                for item in items:
                    made_of = self._value(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, made_of)
            case ast.Return(value=value) if value is not None:
                self.result |= self._value(value)
            case ast.If(test=condition) | ast.While(test=condition) | ast.Assert(test=condition):
                self._value(condition)
                self.has_effect |= isinstance(statement, ast.Assert)
            case ast.Expr(value=value):
                self._value(value)
            case ast.Pass() | ast.Return() | ast.Break() | ast.Continue():
                pass
            case _:
                raise _Misunderstood
        for inner in (*getattr(statement, "body", ()), *getattr(statement, "orelse", ())):
            self._statement(inner)

    def _assign(self, target: ast.expr, made_of: Parameters) -> None:
        match target:
            case ast.Name(id=name):
                self.variables[name] = self.variables.get(name, NOTHING) | made_of
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self._assign(item, made_of)
            case ast.Starred(value=value):
                self._assign(value, made_of)
            case _:
                raise _Misunderstood

    # Expressions ----------------------------------------------------------------------------------

    def _value(self, expression: ast.expr) -> Parameters:
        """The parameters of which a value is made."""
        match expression:
            case ast.Name(id=name):
                return self.variables.get(name, NOTHING)
            case ast.Attribute(attr="dtype" | "type" | "shape" | "strides"):
                return NOTHING
            case ast.Call():
                return self._call(expression)
            case ast.NamedExpr(target=target, value=value):
                made_of = self._value(value)
                self._assign(target, made_of)
                return made_of
            case (
                ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ):
                raise _Misunderstood  # Variables of their own.
        return self._union(
            child for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr)
        )

    def _union(self, expressions: Iterator[ast.expr]) -> Parameters:
        return NOTHING.union(*map(self._value, expressions))

    def _call(self, call: ast.Call) -> Parameters:
        operands = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(operand, ast.Starred) for operand in operands):
            raise _Misunderstood
        callee = self._object(call.func)
        if callee is _MISSING and isinstance(call.func, ast.Attribute):
            return self._method(call.func, operands)
        helper = python_function(callee)
        function = callee if helper is None else helper
        module = str(getattr(function, "__module__", ""))
        name = str(getattr(function, "__name__", ""))
        if module.partition(".")[0] == "triton" or any(callee is known for known in _BUILTINS):
            return self._of_triton(name, call, operands)
        if helper is not None and isinstance(call.func, ast.Name):
            self._note(call.func.id, callee)
            return self._helper(_writes_of(helper, self.around), helper, call)
        return self._unknown(operands)

    def _method(self, callee: ast.Attribute, operands: list[ast.expr]) -> Parameters:
        """A call of a method of a value."""
        owner, made_of = self._value(callee.value), self._union(iter(operands))
        if callee.attr in _STORES:
            self.stores.add(owner)
        if callee.attr in _STORES | _LOADS:
            return NOTHING
        if callee.attr in ("to", "cast"):
            self._refuse_pointer_types(operands)
        if not _is_method_of_triton(callee.attr):
            return self._unknown([callee.value, *operands])
        return owner | made_of

    def _of_triton(self, name: str, call: ast.Call, operands: list[ast.expr]) -> Parameters:
        """A call of a function of Triton's, or of Python's."""
        made_of = self._union(iter(operands))
        if name in _PRINTS:
            self.has_effect = True
            if name == "inline_asm_elementwise" and made_of:
                self.stores.add(made_of)
        if name in _STORES:
            self.stores.add(self._value(_first(call)))
        if name in _STORES | _LOADS:
            return NOTHING
        if name == "cast":
            self._refuse_pointer_types(operands)
        if name == "pointer_type":
            raise _FollowsAddresses
        functions = (self._object(operand) for operand in operands)
        if name not in _COMBINES and any(python_function(one) is not None for one in functions):
            return self._unknown(operands)
        return made_of

    def _refuse_pointer_types(self, operands: list[ast.expr]) -> None:
        """A number that is given the type of a pointer is an address that nobody knows."""
        types = [one for one in operands if isinstance(one, ast.Attribute) and one.attr == "dtype"]
        if any(self._value(one.value) for one in types):
            raise _FollowsAddresses

    def _helper(self, writes: KernelWrites, helper: FunctionType, call: ast.Call) -> Parameters:
        """A call of a function of the program's."""
        if not writes.is_known:
            raise _FollowsAddresses if writes.follows_addresses else _Misunderstood
        try:
            bound = inspect.signature(helper).bind(
                *call.args, **{str(keyword.arg): keyword.value for keyword in call.keywords}
            )
        except TypeError:
            raise _Misunderstood from None
        given = {name: self._value(value) for name, value in bound.arguments.items()}
        self.stores |= {_mapped(store, given) for store in writes.stores}
        self.has_effect |= writes.has_effect
        for one in writes.helpers:
            self.helpers.setdefault((one.owner.__qualname__, one.name), one)
        return _mapped(writes.result, given)

    def _unknown(self, operands: list[ast.expr]) -> Parameters:
        """A call of what is not known: it may write where its arguments point."""
        made_of = self._union(iter(operands))
        self.has_effect = True
        if made_of:
            self.stores.add(made_of)
        return made_of

    def _note(self, name: str, kernel: Any) -> None:
        helper = Helper(self.function, name, kernel)
        self.helpers.setdefault((self.function.__qualname__, name), helper)

    def _object(self, expression: ast.expr) -> Any:
        """The object outside of the kernel that a name, or a path of names, stands for."""
        match expression:
            case ast.Name(id=name) if name not in self.variables:
                return _variable(self.function, name)
            case ast.Attribute(value=value, attr=name):
                owner = self._object(value)
                return _MISSING if owner is _MISSING else getattr(owner, name, _MISSING)
        return _MISSING


_BUILTINS: Final[tuple[Callable[..., Any], ...]] = (
    abs, bool, float, int, isinstance, len, max, min, print, range, round, sum, tuple,
)  # fmt: skip
"""Functions of Python's that a kernel may call."""


def _is_method_of_triton(name: str) -> bool:
    """Whether a method is one of the values in a kernel, and not of a class of the program's."""
    language = sys.modules["triton.language"]
    classes = (language.tensor, language.constexpr, language.dtype)
    return any(hasattr(cls, name) for cls in classes)


def _first(call: ast.Call) -> ast.expr:
    """The operand of a call that says where it writes."""
    named = (keyword.value for keyword in call.keywords if keyword.arg in ("pointer", "desc"))
    target = call.args[0] if call.args else next(named, None)
    if target is None:
        raise _Misunderstood
    return target


def _mapped(parameters: Parameters, given: Mapping[str, Parameters]) -> Parameters:
    """The parameters of the caller of which those of a function are made."""
    return NOTHING.union(*(given.get(name, NOTHING) for name in parameters))
