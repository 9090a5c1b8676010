"""The table of operators: a row for each of which torch's declaration does not tell all.

A name stands without its namespace, and without `default`. Names of one row share all its facts.
Columns are the fields of `Facts`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from fusewright.records import record


class OperatorKind(Enum):
    """How an operator computes its result."""

    POINTWISE = auto()
    """Element by element, though not every version of torch tags it so."""

    REDUCTION = auto()
    """By a reduction in a generated kernel, which may compute what is reduced on the way."""

    LIBRARY = auto()
    """By a matrix product, a convolution, attention or sorting, which cost more than memory."""

    VIEW = auto()
    """The result shows the argument's memory, in eager or in compiled code."""

    RESHAPE = auto()
    """A view in the sizes that are its second argument."""

    ITSELF = auto()
    """The result is the argument."""

    LITERAL = auto()
    """The result is a tensor made of a literal of the program."""

    GEOMETRY = auto()
    """The result is sizes or strides of the argument."""

    OTHER = auto()
    """The operator is computed as torch declares and tags it."""


class Neutral(Enum):
    """Which second arguments make a call give its first, if that has the geometry of the result."""

    ANY = auto()
    ONE = auto()
    ZEROS = auto()


@record(kw_only=True)
class Facts:
    """One row."""

    kind: OperatorKind = OperatorKind.OTHER
    undone_by: str = ""
    """For a view of the whole: the operator that gives the whole for the view's new value."""

    put_back_by: str = ""
    """For a view of a part: the operator that gives the whole with a new value of the part."""

    keeps_places: bool = False
    """For a view: its elements are where those of the whole are, unless they differ in size."""

    turns_into: str = ""
    """The view whose geometry its argument takes on: `transpose.int` for `transpose_`."""

    takes_reals: bool = False
    """The operator takes a real number that varies, in its kernel or in a library call."""

    writes_its_out: bool = False
    """The out-variant computes right into the result; many compute elsewhere and copy."""

    overwrites: bool = False
    """The operator's loops take over the memory of the first argument."""

    keeps_filled: bool = False
    """The result of a tensor filled with one value is filled, as with pointwise operators."""

    neutral: Neutral | None = None
    """The second arguments with which a call changes nothing."""

    takes_memory: bool = False
    """The operator gives its argument other memory, which cannot be traced."""

    writes_repeated: bool = False
    """Eager lets the operator write to a tensor whose elements are one in memory."""

    takes_places_of_cpu: bool = False
    """Indices or lengths may lie on the CPU, where the first tensor lies on a GPU."""

    writes_unnoticed: bool = False
    """The operator writes to arguments without autograd noticing, as its schema does not say so:
    what was saved before does not count as modified.
    """

    refuses_values: bool = False
    """The operator may get neither zeros nor ones: as masks, these choose nothing, or all."""

    gives_new_memory: bool = False
    """Nobody else holds the memory of its result: what comes behind may be computed there."""

    is_unfilled: bool = False
    """The result's memory holds anything."""

    ignores_values: bool = False
    """Nothing but the geometry of the first argument matters."""

    seeks_equals: bool = False
    """The result tells which elements of two tensors are equal: one rounding more, and none are."""

    sizes_from_values: bool = False
    """How large the result is, the values of an argument may tell alone."""

    made_up: tuple[int, ...] = (0, 1)
    """The numbers that tensors are filled with to ask eager's kernel for the CPU whether it takes a
    call. Some kernels trust integers that are places, pivots or lengths: others than these would
    lead them out of their memory.
    """

    @property
    def is_view(self) -> bool:
        """Whether generated code reads the argument's memory in place of the result's."""
        return self.kind in (OperatorKind.VIEW, OperatorKind.RESHAPE)


UNLISTED: Final = Facts()
"""The facts of an operator without a row."""


def _table(*rows: tuple[str, Facts]) -> dict[str, Facts]:
    table: dict[str, Facts] = {}
    for names, facts in rows:
        for short in names.split():
            name = short if "." in short else f"{short}.default"
            assert table.setdefault(name, facts) is facts, f"two rows for {name}"
    return table


def _row(names: str, kind: OperatorKind = OperatorKind.OTHER, **columns: Any) -> tuple[str, Facts]:
    return names, Facts(kind=kind, **columns)


POINTWISE, REDUCTION = OperatorKind.POINTWISE, OperatorKind.REDUCTION
LIBRARY, VIEW = OperatorKind.LIBRARY, OperatorKind.VIEW

TABLE: Final = _table(
    # Element by element; those without a kind are tagged so by torch.
    _row(
        """
        _native_batch_norm_legit_no_training ones_like zeros_like slice_scatter select_scatter
        diagonal_scatter arange.start_step flip tril triu masked_fill.Tensor
        fusewright.philox_uniform.default
        """,
        POINTWISE,
    ),
    _row("cat", POINTWISE, writes_its_out=True),
    _row("clone _to_copy", POINTWISE, neutral=Neutral.ANY, keeps_filled=True),
    _row("full full_like masked_fill.Scalar", POINTWISE, takes_reals=True),
    _row("constant_pad_nd", POINTWISE, takes_reals=True, neutral=Neutral.ZEROS),
    _row("mul.Tensor div.Tensor pow.Tensor_Scalar", takes_reals=True, neutral=Neutral.ONE),
    _row(
        """
        add.Tensor sub.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor
        remainder.Tensor fmod.Tensor add.Scalar sub.Scalar mul.Scalar div.Scalar eq.Scalar ne.Scalar
        lt.Scalar le.Scalar gt.Scalar ge.Scalar remainder.Scalar fmod.Scalar rsub.Scalar pow.Scalar
        copysign.Scalar fill.Scalar lerp.Scalar remainder.Scalar_Tensor where.Scalar
        where.ScalarSelf where.ScalarOther clamp clamp_min clamp_max addcmul addcdiv leaky_relu
        hardtanh elu celu softplus threshold hardshrink softshrink hardshrink_backward
        softshrink_backward addbmm addr
        index_fill.int_Scalar new_full scalar_tensor
        """,
        takes_reals=True,
    ),
    _row("eq.Tensor ne.Tensor", takes_reals=True, seeks_equals=True),
    # Reductions and library calls.
    _row("sum sum.dim_IntList mean mean.dim amax amin var_mean.correction", REDUCTION),
    _row("_softmax_backward_data _log_softmax_backward_data", REDUCTION),
    _row("mm bmm", LIBRARY, writes_its_out=True, gives_new_memory=True),
    _row(
        "addmm baddbmm addmv",
        LIBRARY,
        writes_its_out=True,
        takes_reals=True,
        gives_new_memory=True,
    ),
    _row("convolution", LIBRARY, gives_new_memory=True),
    _row(
        """
        sort sort.stable topk _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention
        """,
        LIBRARY,
    ),
    _row(
        """
        cumsum cumprod gather avg_pool2d avg_pool3d upsample_nearest2d upsample_bilinear2d
        upsample_bicubic2d
        """,
        writes_its_out=True,
    ),
    # Views.
    _row("view _unsafe_view", OperatorKind.RESHAPE, undone_by="_unsafe_view", neutral=Neutral.ANY),
    _row("_reshape_alias", OperatorKind.RESHAPE, undone_by="_unsafe_view"),
    _row("squeeze squeeze.dim squeeze.dims unsqueeze", VIEW, undone_by="_unsafe_view"),
    _row("expand", VIEW, neutral=Neutral.ANY),
    _row("permute", VIEW, undone_by="permute", neutral=Neutral.ANY),
    _row("t", VIEW, undone_by="t"),
    _row("transpose.int", VIEW, undone_by="transpose.int"),
    _row("select.int", VIEW, put_back_by="select_scatter"),
    _row("slice.Tensor", VIEW, put_back_by="slice_scatter"),
    _row("diagonal", VIEW, put_back_by="diagonal_scatter"),
    _row("as_strided", VIEW, put_back_by="as_strided_scatter"),
    _row("unfold unsafe_split.Tensor unsafe_split_with_sizes", VIEW),
    _row("view_as_real", VIEW, undone_by="view_as_complex"),
    _row("view_as_complex", VIEW, undone_by="view_as_real"),
    _row("view.dtype", VIEW, undone_by="view.dtype", keeps_places=True),
    _row("_conj", VIEW, undone_by="_conj", keeps_places=True),
    _row("_neg_view", VIEW, undone_by="_neg_view", keeps_places=True),
    _row("alias", OperatorKind.ITSELF, undone_by="alias", keeps_places=True),
    _row("detach", OperatorKind.ITSELF, undone_by="detach", keeps_places=True),
    # Operators that change their argument's geometry or memory.
    _row("t_", turns_into="t"),
    _row("transpose_ swapdims_ swapaxes_", turns_into="transpose.int"),
    _row("squeeze_", turns_into="squeeze"),
    _row("squeeze_.dim", turns_into="squeeze.dim"),
    _row("squeeze_.dims", turns_into="squeeze.dims"),
    _row("unsqueeze_", turns_into="unsqueeze"),
    _row("as_strided_", turns_into="as_strided"),
    _row("detach_", turns_into="detach"),
    _row(
        "resize_ resize_as_ set_.source_Tensor set_.source_Storage_storage_offset",
        takes_memory=True,
    ),
    # Operators that write.
    _row("index_add scatter.value scatter.value_reduce", takes_reals=True, overwrites=True),
    _row("scatter.src scatter.reduce scatter_add scatter_reduce.two index_copy", overwrites=True),
    _row("index_put", overwrites=True, refuses_values=True, takes_places_of_cpu=True),
    _row("index_put_", writes_repeated=True, refuses_values=True, takes_places_of_cpu=True),
    _row("_index_put_impl_ _unsafe_index_put", refuses_values=True, takes_places_of_cpu=True),
    _row("segment_reduce cholesky", refuses_values=True),
    _row(
        """
        _unsafe_index.Tensor _use_miopen_ctc_loss _use_miopen_ctc_loss.Tensor _use_cudnn_ctc_loss
        _use_cudnn_ctc_loss.Tensor
        """,
        takes_places_of_cpu=True,
    ),
    # Operators whose kernels trust integers: where sizes are 1, a place is 0; pivots begin at 1.
    _row("_ctc_loss _ctc_loss.Tensor", takes_places_of_cpu=True, made_up=(0,)),
    _row(
        """
        max_pool2d_with_indices_backward max_pool3d_with_indices_backward
        adaptive_max_pool2d_backward adaptive_max_pool3d_backward nll_loss_backward
        _embedding_bag_backward _embedding_bag_dense_backward
        _embedding_bag_per_sample_weights_backward _ctc_loss_backward _ctc_loss_backward.Tensor
        """,
        made_up=(0,),
    ),
    _row("linalg_ldl_solve", made_up=(1,)),
    _row("index.Tensor", takes_places_of_cpu=True, sizes_from_values=True),
    _row(
        """
        nonzero masked_select repeat_interleave.Tensor _unique2 unique_consecutive unique_dim
        """,
        sizes_from_values=True,
    ),
    _row(
        """
        fill_.Scalar zero_ masked_fill_.Scalar masked_fill_.Tensor index_fill_.int_Scalar
        index_fill_.int_Tensor tril_ triu_ fill_diagonal_ threshold_ _foreach_zero_ sum.IntList_out
        """,
        writes_repeated=True,
    ),
    _row("native_batch_norm cudnn_batch_norm miopen_batch_norm", writes_unnoticed=True),
    # Factories, and questions.
    _row(
        """
        empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided
        """,
        is_unfilled=True,
    ),
    _row(
        """
        bernoulli.p uniform normal_functional random random.from random.to exponential geometric
        log_normal cauchy
        """,
        ignores_values=True,
    ),
    _row("lift_fresh lift_fresh_copy lift", OperatorKind.LITERAL),
    _row("size stride", OperatorKind.GEOMETRY),
)
"""Facts by operator, such as `mm.default`. Names that a version of torch lacks have no effect."""
