"""Makes a traced graph functional: no node writes, and every later reader of a written storage sees
the new value.

    view = aten.select(x, 0, 1)                    add = aten.add(select, 1)
    add = aten.add(view, 1)                  ->    x_1 = aten.select_scatter(x, add, 0, 1)
    copy_ = aten.copy_(view, add)                  mul = aten.mul(x_1, 2)
    mul = aten.mul(x, 2)

Why not torch's own C++ functionalisation: measured on ResNet-50 and ViT it adds 3 to 8 % to
tracing, so speed does not decide. It is reached by private names alone, wraps every tensor once
more, and hides what it did; while the tracer already turns every write into one `copy_`, after
which functionalising is this one pass over a graph that can be printed before and after. A graph
without `copy_` never comes here.

A view is a node whose operator aliases its first argument; following first arguments leads to the
*root*, which owns the storage. Each write gives the root a new version; a view read at a later
version is computed again from it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.errors import Unsupported
from fusewright.fake import FakeMode
from fusewright.fake_rules.geometry import known_equal, same_sizes
from fusewright.operators import OperatorKind, facts, operator_named
from fusewright.torch_compat import OpOverload
from fusewright.user_kernels import UserKernelOnCopies

aten = torch.ops.aten


def view_source(node: fx.Node) -> fx.Node | None:
    """The node that `node` is a view of; None when it has a storage of its own."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return None
    if not torch_compat.is_view_operator(node.target):
        return None
    source = node.args[0]
    return source if isinstance(source, fx.Node) else None


def memory_owner(node: fx.Node) -> fx.Node:
    """The node whose storage `node` shows: itself, unless it is a view."""
    while (source := view_source(node)) is not None:
        node = source
    return node


def shown_memory(node: fx.Node) -> fx.Node:
    """`memory_owner`, seen through reshapes that are no views by their schema but may share memory
    in compiled code.
    """
    node = memory_owner(node)
    while node.target is aten._unsafe_view.default:
        node = memory_owner(node.args[0])  # type: ignore[arg-type]
    return node


class Functionalizer:
    """Rewrites one graph in place; `current(root)` is then the last value of a storage."""

    def __init__(self, graph: fx.Graph, fakes: FakeMode) -> None:
        self._graph = graph
        self._fakes = fakes
        self._values: dict[fx.Node, tuple[fx.Node, int]] = {}
        """The node that holds what another one would show, and the version of the root it was made
        at.
        """

        self._sources = {node: view_source(node) for node in graph.nodes}
        """The node that each was a view of in the traced graph, whose arguments are about to be
        rewritten.
        """

        self._roots: dict[fx.Node, fx.Node] = {}
        self._versions: dict[fx.Node, int] = {}
        self._origin: dict[str, Any] = {}
        self._restrided: set[fx.Node] = set()
        """The roots whose memory `as_strided` counts in: new values are laid out like them."""

    def run(self) -> None:
        """Replace every `copy_`; after this no node of the graph writes."""
        self._root_restrided()
        for node in list(self._graph.nodes):
            if node.op != "call_function":
                continue
            with self._graph.inserting_before(node):
                self._visit(node)

    def _root_restrided(self) -> None:
        """Let each `as_strided`, which shows memory wherever its argument lies in it, be one of the
        node that owns the memory.
        """
        for node in self._graph.find_nodes(op="call_function", target=aten.as_strided.default):
            root = self.root(node)
            whole, part = root.meta["val"], node.meta["val"]
            if node.args[0] is not root and whole.itemsize == part.itemsize == _item_size(node):
                offset = part.storage_offset()
                if isinstance(offset, int):
                    node.args = (root, *node.args[1:3], offset)
                    self._sources[node] = root
            self._restrided.add(root)

    def _visit(self, node: fx.Node) -> None:
        self._origin = {name: value for name, value in node.meta.items() if name != "val"}
        if node.target is aten.copy_.default:
            target, value = node.all_input_nodes[0], node.all_input_nodes[-1]
            self._write(target, self._fitted(self.current(value), target))
            self._graph.erase_node(node)
            return
        source = self._sources[node]
        if source is not None and self._lies_elsewhere(source):
            return  # `current` computes it anew where it is read
        if source is None and any(map(self._is_moved, node.all_input_nodes)):
            node.meta["reads_moved"] = True
        node.args = fx.node.map_arg(node.args, self.current)
        node.kwargs = fx.node.map_arg(node.kwargs, self.current)
        if isinstance(node.target, UserKernelOnCopies):
            node.args = tuple(map(self._lying_as, node.args, node.target.likes))
        self._values[node] = (node, self._versions.get(self.root(node), 0))

    def _lying_as(self, argument: Any, like: torch.Tensor | None) -> Any:
        """An argument, copied where it does not lie as a call expects it."""
        if like is None or same_sizes(argument.meta["val"].stride(), like.stride()):
            return argument
        return self._laid_out(argument, like)

    def _is_moved(self, node: fx.Node) -> bool:
        """Whether a tensor lies elsewhere: a library call that reads it lays out its result as that
        is, not as eager's call does, which lowering then allows to be copied.
        """
        return isinstance(node.meta["val"], torch.Tensor) and self._lies_elsewhere(node)

    def _lies_elsewhere(self, node: fx.Node) -> bool:
        """Whether what holds the value of `node` has other strides than `node` had in the traced
        graph, as what is written in place need not: views of it have other strides as well.
        """
        held, traced = self.current(node).meta["val"], node.meta["val"]
        return not same_sizes(held.stride(), traced.stride())

    def current(self, node: fx.Node) -> fx.Node:
        """The node that holds what `node` shows at this point of the program."""
        root = self.root(node)
        version = self._versions.get(root, 0)
        value, made_at = self._values.get(node, (node, 0))
        if made_at == version:
            return value
        source = self._sources[node]
        assert source is not None, "the root's value is always the latest"
        value = self._emit(*replay(node, self.current(source)))
        self._values[node] = (value, version)
        return value

    def is_written(self, node: fx.Node) -> bool:
        """Whether anything was written to the storage of `node`."""
        return self._versions.get(self.root(node), 0) > 0

    def root(self, node: fx.Node) -> fx.Node:
        """The node that owned the storage of `node` in the traced graph."""
        root = self._roots.get(node)
        if root is None:
            source = self._sources[node]
            root = self._roots[node] = node if source is None else self.root(source)
        return root

    def _write(self, target: fx.Node, value: fx.Node) -> None:
        root = self.root(target)
        chain = [target]
        while (source := self._sources[chain[-1]]) is not None:
            chain.append(source)
        if any(isinstance(size, int) and size == 0 for size in target.meta["val"].shape):
            value = self.current(root)  # which counts as written nevertheless
        elif any(not _is_invertible(view) for view in chain[:-1]):
            value = self._put_at_places(chain, value)
        else:
            for view, parent in itertools.pairwise(chain):
                value = self._emit(*undo(view, self.current(parent), value))
        if root in self._restrided:
            value = self._laid_out(value, root.meta["val"])
        self._versions[root] = self._versions.get(root, 0) + 1
        self._values[root] = (value, self._versions[root])

    def _fitted(self, value: fx.Node, target: fx.Node) -> fx.Node:
        """`value` converted and expanded as `copy_` into `target` does."""
        wanted, own = target.meta["val"], value.meta["val"]
        if wanted.dtype != own.dtype or wanted.device != own.device:
            options = {"dtype": wanted.dtype, "device": wanted.device}
            value = self._emit(aten._to_copy.default, (value,), options)
        if tuple(wanted.shape) != tuple(own.shape):
            value = self._emit(aten.expand.default, (value, sizes_of(target)), {})
        return value

    def _put_at_places(self, chain: Sequence[fx.Node], value: fx.Node) -> fx.Node:
        """The value of the root, the last of `chain`, with `value` put where the first, a view,
        shows it: a view in between may show an element many times, or leave some out.

        The same views of the numbers of the root's elements tell where each is from; views that
        show something else in the same place, such as the conjugate, are undone in `value`.
        """
        root = chain[-1]
        like = root.meta["val"]
        if any(view.meta["val"].itemsize != like.itemsize for view in chain):
            raise Unsupported(
                f"writing through {chain[0].target} cannot be made functional",
                self._origin.get("location"),
            )
        views = []
        for view, parent in itertools.pairwise(chain):
            if facts(view.target).keeps_places:
                value = self._emit(*undo(view, parent, value))
            else:
                views.append(view)
        options = {"dtype": torch.int64, "device": like.device}
        sizes = sizes_of(root)
        count = _product_of_sizes(sizes)
        places = self._emit(aten.arange.default, (count,), options)
        places = self._emit(aten.view.default, (places, sizes))
        if root in self._restrided:
            places = self._laid_out(places, like)
        for view in reversed(views):
            places = self._emit(*replay(view, places))
        whole = self._emit(aten._unsafe_view.default, (self.current(root), [count]))
        whole = self._emit(aten.index_put.default, (whole, [places], value))
        return self._emit(aten._unsafe_view.default, (whole, sizes))

    def _laid_out(self, value: fx.Node, like: torch.Tensor) -> fx.Node:
        """A copy of `value` in memory of its own that is laid out like `like`."""
        order = sorted(range(like.dim()), key=lambda dim: (like.stride()[dim], like.shape[dim]))[
            ::-1
        ]
        ordered = like.permute(order)
        if like.storage_offset() != 0 or not ordered.is_contiguous():
            raise Unsupported(
                "writing to memory that as_strided shows, and that is not dense",
                self._origin.get("location"),
            )
        dense = {"memory_format": torch.contiguous_format}
        value = self._emit(aten.permute.default, (value, order))
        value = self._emit(aten.clone.default, (value,), dense)
        back = [order.index(dim) for dim in range(len(order))]
        return self._emit(aten.permute.default, (value, back))

    def _emit(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> fx.Node:
        values = fx.node.map_arg((args, kwargs or {}), lambda argument: argument.meta["val"])
        try:
            result = self._fakes.dispatch(op, *values)
        except (RuntimeError, ValueError):  # The strides allow no view: the new value is copied.
            if op is not aten._unsafe_view.default or args[0].target is aten.clone.default:
                raise
            dense = {"memory_format": torch.contiguous_format}
            return self._emit(op, (self._emit(aten.clone.default, args[:1], dense), *args[1:]))
        node = self._graph.call_function(op, args, kwargs or {})
        node.meta.update(self._origin, val=result)
        return node


def _item_size(view: fx.Node) -> int:
    """The bytes of an element of what `view` is made of."""
    return view.args[0].meta["val"].itemsize  # type: ignore[union-attr, no-any-return]


# -- views, forwards and backwards ----------------------------------------------------------------

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An operator with its arguments."""


def sizes_of(node: fx.Node) -> list[Any]:
    """The sizes of what `node` gives; those that are symbolic are read from it."""
    return [
        size if isinstance(size, int) else _read_size(node, dim, size)
        for dim, size in enumerate(node.meta["val"].shape)
    ]


def _product_of_sizes(sizes: Sequence[Any]) -> Any:
    """The product of `sizes`, numbers and nodes."""
    product: Any = 1
    for size in sizes:
        if not isinstance(product, fx.Node) and not isinstance(size, fx.Node):
            product *= size
            continue
        (node, *_) = (factor for factor in (product, size) if isinstance(factor, fx.Node))
        values = [
            factor.meta["val"] if isinstance(factor, fx.Node) else factor
            for factor in (product, size)
        ]
        product = node.graph.call_function(operator.mul, (product, size))
        product.meta["val"] = values[0] * values[1]
    return product


def _read_size(node: fx.Node, dim: int, size: torch.SymInt) -> fx.Node:
    read = node.graph.call_function(aten.sym_size.int, (node, dim))
    read.meta["val"] = size
    return read


def replay(view: fx.Node, source: fx.Node) -> Call:
    """The view `view`, of `source`. Strides may differ from the first time, so `view` becomes
    `reshape`.
    """
    if facts(view.target).kind is OperatorKind.RESHAPE:
        return aten._unsafe_view.default, (source, view.args[1]), {}
    return view.target, (source, *view.args[1:]), dict(view.kwargs)


def undo(view: fx.Node, parent: fx.Node, value: fx.Node) -> Call:
    """The whole that `view` is a part of, computed from the whole before, `parent`, and the new
    value of the part.
    """
    row = facts(view.target)
    if row.put_back_by:
        scatter = operator_named(row.put_back_by)
        return scatter, (parent, value, *view.args[1:]), dict(view.kwargs)
    inverse = operator_named(row.undone_by)
    arguments = BACKWARDS.get(inverse)
    back = view.args[1:] if arguments is None else arguments(view, parent)
    return inverse, (value, *back), {}


def _order_back(view: fx.Node, parent: fx.Node) -> tuple[Any, ...]:
    dims = [dim % len(view.args[1]) for dim in view.args[1]]  # type: ignore[arg-type, operator, union-attr]
    return ([dims.index(dim) for dim in range(len(dims))],)


BACKWARDS: Final[dict[Any, Callable[[fx.Node, fx.Node], tuple[Any, ...]]]] = {
    aten._unsafe_view.default: lambda view, parent: (sizes_of(parent),),
    aten.permute.default: _order_back,
    aten.view.dtype: lambda view, parent: (parent.meta["val"].dtype,),
}
"""By operator that undoes a view: its arguments behind the value, given the view and the whole,
where they are not those of the view.
"""


def _is_invertible(view: fx.Node) -> bool:
    """Whether the whole can be computed from the part that `view` is: it shows each element once,
    by an operator that has an inverse.
    """
    row = facts(view.target)
    return bool(row.undone_by or row.put_back_by) and not may_repeat_elements(view.meta["val"])


def may_repeat_elements(tensor: torch.Tensor) -> bool:
    """Whether two elements of a fake may be one in memory, as `expand` makes them; certain only
    where not. A stride that is a symbol counts as one that does not repeat, and a size that is one
    as more than 1.
    """
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    steps = [
        (step, size) for step, size in pairs if isinstance(step, int) and not known_equal(size, 1)
    ]
    if any(known_equal(size, 0) for _, size in steps):
        return False
    reach = 0
    for step, size in sorted(steps, key=lambda pair: pair[0]):
        if step <= reach:
            return True
        if not isinstance(size, int):
            return False
        reach += (size - 1) * step
    return False
