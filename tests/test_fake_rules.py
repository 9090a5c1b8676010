"""Our rules give the sizes, strides and types that eager gives, on torch's own samples of each
operator.
"""

from __future__ import annotations

import itertools
import os
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from fusewright.errors import DataDependent, UnsupportedOperator
from fusewright.fake import FakeMode
from fusewright.fake_rules import RULES, Geometry

SAMPLES_EACH = 10

CHECKED = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "atan2",
    "eq",
    "lt",
    "logical_and",
    "bitwise_and",
    "exp",
    "tanh",
    "sigmoid",
    "neg",
    "abs",
    "relu",
    "round",
    "isnan",
    "clamp",
    "where",
    "masked_fill",
    "mean",
    "sum",
    "amax",
    "amin",
    "any",
    "all",
    "argmax",
    "var",
    "std",
    "cumsum",
    "max",
    "min",
    "softmax",
    "log_softmax",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.batch_norm",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.max_pool2d",
    "nn.functional.embedding",
    "nn.functional.linear",
    "nn.functional.gelu",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.pad",
    "mm",
    "bmm",
    "baddbmm",
    "addmm",
    "matmul",
    "cat",
    "stack",
    "repeat",
    "gather",
    "index_select",
    "__getitem__",
    "arange",
    "linspace",
    "eye",
    "zeros_like",
    "full_like",
    "tril",
    "addcmul",
    "lerp",
    "copysign",
    "hypot",
    "angle",
    "logaddexp2",
    "xlogy",
    "isin",
    "__rpow__",
    "nn.functional.rrelu",
    "linalg.eig",
    "nn.functional.max_unpool2d",
    "nn.functional.soft_margin_loss",
    "fft.rfftn",
    "fft.hfftn",
    "fft.fft2",
]
"""Run in CI; `FUSEWRIGHT_TEST_ALL=1` checks every operator that torch has samples of."""

if os.environ.get("FUSEWRIGHT_TEST_ALL") == "1":
    CHECKED = sorted({op.name for op in op_db if "jiterator" not in op.name})  # those need CUDA

FACTORS = "torch's meta kernel lays out the factors otherwise than its CPU kernel"

KNOWN_TO_DIFFER: dict[str, str] = {
    "_native_batch_norm_legit": "torch's meta kernel gives saved statistics in inference",
    **dict.fromkeys(("linalg.svd", "svd_lowrank", "pca_lowrank"), FACTORS),
    "tensor_split": "torch reads the values of the indices behind the dispatcher",
    **dict.fromkeys(("sparse.mm", "sparse.sampled_addmm"), "sparse tensors are not traced"),
}
"""Where torch's own meta kernel, or the sample, is at fault; none has a rule of ours."""


DIFFERS_WHERE_LAID_OUT_ANEW: dict[str, str] = {
    **dict.fromkeys(
        ("nn.functional.conv1d", "nn.functional.conv_transpose1d"),
        "oneDNN takes a batch of one with channels of stride 0 for channels-last",
    ),
    "matmul": "of no elements, eager multiplies matrices of two types",
    "_batch_norm_with_update": "torch's meta kernel keeps other layouts than its CPU kernel",
    "native_dropout_backward": "torch's meta kernel keeps other layouts than its CPU kernel",
    "normal": "torch's meta kernel promotes types that its CPU kernel does not",
    "nn.functional.binary_cross_entropy": "torch's meta kernel lays out the result as the target",
    "nn.functional.huber_loss": "torch's meta kernel lays out the result of an expanded input",
    "nn.functional.one_hot": "torch takes another path on meta tensors",
    "view_copy": "torch's meta kernel refuses what its CPU kernel copies",
}
"""Where fakes have other strides than eager for arguments that are not row-major."""


def geometries(value: Any) -> list[Any]:
    """Size, type and strides of each tensor; strides of single elements mean nothing."""
    flat = value if isinstance(value, (tuple, list)) else (value,)
    return [
        (tuple(one.shape), one.stride() if one.numel() > 1 else None, one.dtype)
        for one in flat
        if isinstance(one, torch.Tensor)
    ]


def without_single_elements(geometry: Any) -> Any:
    """A geometry without the strides of dimensions of one element, which mean nothing either."""
    size, strides, dtype = geometry
    if strides is not None:
        strides = tuple(s for n, s in zip(size, strides, strict=True) if n != 1)
    return size, strides, dtype


def laid_out_anew(choice: random.Random, value: Any) -> Any:
    """A tensor of the same sizes in memory of another layout: its dimensions in another order, its
    rows with gaps, or one of its dimensions expanded.
    """
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    tensor = value.detach()
    match choice.choice(("permuted", "permuted", "gaps", "expanded", "same")):
        case "permuted":
            order = choice.sample(range(tensor.dim()), tensor.dim())
            return tensor.permute(order).contiguous().permute(np.argsort(order).tolist())
        case "gaps":
            wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
            return wide[..., ::2].copy_(tensor)
        case "expanded":
            dim = choice.randrange(tensor.dim())
            return tensor.narrow(dim, 0, 1).expand(tensor.shape) if tensor.shape[dim] else tensor
    return tensor


def to_fakes(mode: FakeMode, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return mode.fake(value)
    if isinstance(value, (tuple, list)):
        return type(value)([to_fakes(mode, one) for one in value])
    if isinstance(value, dict):
        return {name: to_fakes(mode, one) for name, one in value.items()}
    return value


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("name", CHECKED)
def test_geometry_on_samples(name: str, dtype: torch.dtype) -> None:
    if name in KNOWN_TO_DIFFER:
        pytest.skip(KNOWN_TO_DIFFER[name])
    operators = [op for op in op_db if op.name == name and dtype in op.dtypes]
    for operator in operators:
        samples = operator.sample_inputs("cpu", dtype)
        for sample in itertools.islice(samples, SAMPLES_EACH):
            mode = FakeMode()
            arguments = to_fakes(mode, [sample.input, *sample.args])
            keywords = to_fakes(mode, sample.kwargs)
            try:
                with torch.no_grad(), mode:
                    found = geometries(operator.op(*arguments, **keywords))
            except (DataDependent, UnsupportedOperator):
                continue
            with torch.no_grad():
                expected = geometries(operator.op(sample.input, *sample.args, **sample.kwargs))
            assert found == expected, (sample.summary(), found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", CHECKED)
def test_geometry_where_laid_out_anew(name: str, dtype: torch.dtype) -> None:
    reason = {**KNOWN_TO_DIFFER, **DIFFERS_WHERE_LAID_OUT_ANEW}.get(name)
    if reason is not None:
        pytest.skip(reason)
    choice = random.Random(0)
    for operator in (op for op in op_db if op.name == name and dtype in op.dtypes):
        for sample in itertools.islice(operator.sample_inputs("cpu", dtype), SAMPLES_EACH):
            arguments, keywords = tree_map(
                partial(laid_out_anew, choice), ([sample.input, *sample.args], sample.kwargs)
            )
            if len(arguments) > 1 and choice.random() < 0.25:
                arguments[1] = tree_map(in_double, arguments[1])
            check_geometry(operator.op, arguments, keywords)


def in_double(value: Any) -> Any:
    """A float32 tensor as one of another type, which operators promote."""
    is_float = isinstance(value, torch.Tensor) and value.dtype is torch.float32
    return value.double() if is_float else value


def check_geometry(operator: Any, arguments: list[Any], keywords: dict[str, Any]) -> None:
    """What eager returns and fakes do have the same sizes, strides and types."""
    try:
        with torch.no_grad():
            expected = geometries(operator(*arguments, **keywords))
    except RuntimeError:  # eager refuses this layout, or these types together
        return
    mode = FakeMode()
    fakes, fake_keywords = to_fakes(mode, arguments), to_fakes(mode, keywords)
    try:
        with torch.no_grad(), mode:
            found = geometries(operator(*fakes, **fake_keywords))
    except (DataDependent, UnsupportedOperator):
        return
    assert list(map(without_single_elements, found)) == list(
        map(without_single_elements, expected)
    ), (arguments, keywords, found, expected)


def test_indices_decide_on_the_order_of_dimensions() -> None:
    """As many layouts, positions and sizes of indices as chance gives, all as eager has them."""
    choice = random.Random(0)
    for _ in range(500):
        rank = choice.randint(1, 4)
        x = torch.empty([choice.choice((1, 2, 3, 5)) for _ in range(rank)])
        x = laid_out_anew(choice, x)
        common = [choice.choice((1, 2, 4)) for _ in range(choice.randint(0, 2))]
        indices: list[Any] = [None] * rank
        for dim in choice.sample(range(rank), choice.randint(1, rank)):
            size = [1 if choice.random() < 0.3 else extent for extent in common]
            indices[dim] = laid_out_anew(choice, torch.zeros(size, dtype=torch.int64))
        wanted = torch.ops.aten.index.Tensor(x, indices)
        found = RULES[torch.ops.aten.index.Tensor](x, indices)
        assert isinstance(found, Geometry)
        assert (found.size, found.stride) == (tuple(wanted.shape), wanted.stride())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("dims", [[2], [0, 1], [1, 0], [2, 0, 1]])
def test_fourier_transforms_of_any_layout(order: tuple[int, ...], dims: list[int]) -> None:
    x = torch.randn(4, 5, 6).permute(order)
    half = x + 1j
    calls = [
        (torch.ops.aten._fft_r2c.default, (x, dims, 0, True)),
        (torch.ops.aten._fft_r2c.default, (x, dims, 0, False)),
        (torch.ops.aten._fft_c2c.default, (half, dims, 0, True)),
        (torch.ops.aten._fft_c2r.default, (half, dims, 0, 2 * half.shape[dims[-1]] - 2)),
    ]
    for operator, arguments in calls:
        found = RULES[operator](*arguments)
        wanted = operator(*arguments)
        assert isinstance(found, Geometry)
        assert (found.size, found.stride, found.dtype) == geometries(wanted)[0]
