"""Matrix products: reductions of kind `dot`, and what their loops are to the two operands.

A matrix product is a reduction like any other, and what follows at its points fuses with it as it
does with any other. Its kind keeps it apart from a sum of products that somebody wrote, since its
kernel is another one: tiles of results in registers, in place of one result after the other.

```
group addmm_gelu [i0<256, i1<3072]
  local t: f32
  stage over [r0<768]
    t0 = load x[768*i0 + r0]
    t1 = load w[768*i1 + r0]
    t2 = mul t0, t1
    reduce t = dot t2
  stage
    …
    store y[3072*i0 + i1] = t9
```
An operand is a load, or what its kernel computes of loads, such as a cast or an activation.
"""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.group import Group, Reduce, Stage, Store
from fusewright.ir.index import LoopSymbol, Symbol
from fusewright.ir.value import Apply, Cast, IndexValue, Indirect, Load, Random, Value, postorder
from fusewright.records import record

DOT = "dot"
"""The kind of reduction that a matrix product is."""


@record(kw_only=True)
class MatrixProduct:
    """A group that computes one matrix product, and stores what follows from it point by point."""

    left: Value
    """Moves along `rows`, `depth` and `batches`."""

    right: Value
    """Moves along `columns`, `depth` and `batches`."""

    dtype: DType
    """The type in which products are added up."""

    result: str
    """The local that holds an element of the product for the stages behind."""

    rows: LoopSymbol | None
    """The outer loop that only the left operand moves along; None for a single row."""

    columns: LoopSymbol
    """The outer loop that only the right operand moves along, and results lie next to each other
    along, if along any.
    """

    batches: tuple[LoopSymbol, ...]
    """The other outer loops."""

    depth: LoopSymbol
    """The loop that is summed over."""

    epilogue: tuple[Stage, ...]
    """The stages behind the product: stores at its points."""

    @property
    def loads_operands(self) -> bool:
        """Whether both operands are loads, or casts of them, and nothing else is computed."""
        return is_loaded(self.left) and is_loaded(self.right)

    @property
    def factors(self) -> tuple[Value, Value]:
        """What is multiplied: the operands before they are cast to the type in which products are
        added up, where both are of one type, as instructions for half types want it.
        """
        left, right = _before_cast(self.left), _before_cast(self.right)
        return (left, right) if left.dtype is right.dtype else (self.left, self.right)


def load_of(operand: Value) -> Load:
    """The load that an operand of a product is, or is a cast of."""
    load = operand.argument if isinstance(operand, Cast) else operand
    assert isinstance(load, Load)
    return load


def is_loaded(operand: Value) -> bool:
    """Whether an operand of a product is a load, or a cast of one."""
    return isinstance(operand.argument if isinstance(operand, Cast) else operand, Load)


def is_operand(value: Value) -> bool:
    """Whether a value is made from memory, at places that follow from the loops."""
    nodes = [*postorder((value,))]
    return any(isinstance(node, Load) for node in nodes) and not any(
        isinstance(node, Indirect) for node in nodes
    )


def _before_cast(operand: Value) -> Value:
    """An operand of a product before it is cast to the type in which products are added up."""
    match operand:
        case Cast(argument=argument, dtype=dtype) if argument.dtype.compute is dtype:
            return argument
    return operand


def matrix_product(group: Group) -> MatrixProduct | None:
    """The product that a group is; None for any other group."""
    first, *epilogue = group.stages
    if (
        len(first.actions) != 1
        or len(first.inner) != 1
        or any(local.size for local in group.locals)
    ):
        return None
    (action,) = first.actions
    if not isinstance(action, Reduce) or action.kind != DOT:
        return None
    if any(stage.inner or not _only_stores(stage) for stage in epilogue):
        return None
    factors = _factors(action.value)
    if factors is None:
        return None
    along = [symbols_of(factor) for factor in factors]
    own = [[s for s in group.outer if s in along[k] and s not in along[1 - k]] for k in (0, 1)]
    columns = _columns(group, own)
    if columns is None or any(s not in along[0] | along[1] for s in group.outer):
        return None
    side = 0 if columns in own[0] else 1
    rows = own[1 - side][-1] if own[1 - side] else None
    return MatrixProduct(
        left=factors[1 - side],
        right=factors[side],
        dtype=action.value.dtype,
        result=action.targets[0],
        rows=rows,
        columns=columns,
        batches=tuple(s for s in group.outer if s not in (rows, columns)),
        depth=first.inner[0],
        epilogue=tuple(epilogue),
    )


def _only_stores(stage: Stage) -> bool:
    return all(isinstance(action, Store) for action in stage.actions)


def product_of_loads(group: Group) -> MatrixProduct | None:
    """The product that a group is, where it computes nothing of its operands."""
    product = matrix_product(group)
    return product if product is not None and product.loads_operands else None


def _factors(value: Value) -> tuple[Value, Value] | None:
    """The two operands of which `value` is the product."""
    match value:
        case Apply(operation="mul", arguments=(left, right)) if is_operand(left):
            return (left, right) if is_operand(right) else None
    return None


def symbols_of(value: Value) -> set[Symbol]:
    """The symbols that a value varies with."""
    symbols: set[Symbol] = set()
    for node in postorder((value,)):
        match node:
            case Load(index=index) | IndexValue(index=index) | Random(position=index):
                symbols |= index.free()
    return symbols


def _columns(group: Group, own: list[list[LoopSymbol]]) -> LoopSymbol | None:
    """The loop that one operand alone moves along and most stores run along; else the innermost of
    the right operand's, or of the left one's.
    """
    stores = [a for stage in group.stages for a in stage.actions if isinstance(a, Store)]
    candidates = [*reversed(own[1]), *reversed(own[0])]
    return max(
        candidates,
        key=lambda symbol: sum(store.index.stride(symbol) == 1 for store in stores),
        default=None,
    )
