"""Our rules give the sizes, strides and types that eager gives, on torch's own samples of each
operator.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

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
    "xlogy",
    "linalg.eig",
    "nn.functional.max_unpool2d",
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


def geometries(value: Any) -> list[Any]:
    flat = value if isinstance(value, (tuple, list)) else (value,)
    return [
        (tuple(one.shape), one.stride() if one.numel() > 1 else None, one.dtype)
        for one in flat
        if isinstance(one, torch.Tensor)
    ]


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
