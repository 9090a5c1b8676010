"""Every function of torch.nn.functional: one graph through the whole compiler, with eager's result;
or the reason why not.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fusewright
from fusewright.errors import Unsupported

torch.manual_seed(0)
V, M, N = torch.randn(6), torch.randn(4, 6), torch.randn(4, 6)
LINE, IMAGE, VOLUME = torch.randn(2, 4, 8), torch.randn(2, 4, 8, 8), torch.randn(2, 4, 4, 4, 4)
P = M.sigmoid()
SIGN = torch.where(M > 0, 1.0, -1.0)
LABELS, MANY = torch.tensor([0, 5, 2, 1]), torch.randint(0, 6, (4, 6))
TABLE, INDICES = torch.randn(10, 3), torch.tensor([[1, 2, 4], [4, 3, 9]])
POOLED, WHERE = F.max_pool2d(IMAGE, 2, return_indices=True)
POOLED1, WHERE1 = F.max_pool1d(LINE, 2, return_indices=True)
POOLED3, WHERE3 = F.max_pool3d(VOLUME, 2, return_indices=True)
GRID = F.affine_grid(torch.eye(2, 3).repeat(2, 1, 1), [2, 4, 5, 5], align_corners=False)
LONG = torch.randn(12, 2, 5).log_softmax(2)


def attention() -> Any:
    x, e = M.reshape(4, 1, 6), 6
    return F.multi_head_attention_forward(
        x, x, x, e, 2, torch.ones(3 * e, e), torch.zeros(3 * e), None, None, False, 0.0,
        torch.eye(e), torch.zeros(e),
    )  # fmt: skip


POINTWISE = """
    celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6
    selu sigmoid silu softplus softshrink softsign tanh tanhshrink
"""
IN_PLACE = "celu_ elu_ hardtanh_ leaky_relu_ relu_ selu_"
LOSSES = "huber_loss l1_loss mse_loss smooth_l1_loss"

CASES: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: getattr(F, name)(M) for name in POINTWISE.split()},
    **{name: lambda name=name: getattr(F, name)(M.clone()) for name in IN_PLACE.split()},
    **{name: lambda name=name: getattr(F, name)(M, N) for name in LOSSES.split()},
    "adaptive_avg_pool1d": lambda: F.adaptive_avg_pool1d(LINE, 3),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(IMAGE, (3, 2)),
    "adaptive_avg_pool3d": lambda: F.adaptive_avg_pool3d(VOLUME, 2),
    "adaptive_max_pool1d": lambda: F.adaptive_max_pool1d(LINE, 3),
    "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(IMAGE, 3),
    "adaptive_max_pool3d": lambda: F.adaptive_max_pool3d(VOLUME, 2),
    "adaptive_max_pool1d_with_indices": lambda: F.adaptive_max_pool1d(LINE, 3, True),
    "adaptive_max_pool2d_with_indices": lambda: F.adaptive_max_pool2d(IMAGE, 3, True),
    "adaptive_max_pool3d_with_indices": lambda: F.adaptive_max_pool3d(VOLUME, 2, True),
    "affine_grid": lambda: F.affine_grid(torch.ones(2, 2, 3), [2, 3, 4, 4], align_corners=False),
    "alpha_dropout": lambda: F.alpha_dropout(M, training=True),
    "avg_pool1d": lambda: F.avg_pool1d(LINE, 2),
    "avg_pool2d": lambda: F.avg_pool2d(IMAGE, 3, 2, 1),
    "avg_pool3d": lambda: F.avg_pool3d(VOLUME, 2),
    "batch_norm": lambda: F.batch_norm(IMAGE, V[:4], V[:4].exp(), training=True),
    "bilinear": lambda: F.bilinear(M, N, torch.ones(3, 6, 6)),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(P, N.sigmoid()),
    "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(M, P),
    "channel_shuffle": lambda: F.channel_shuffle(IMAGE, 2),
    "conv1d": lambda: F.conv1d(LINE, torch.ones(3, 4, 2)),
    "conv2d": lambda: F.conv2d(IMAGE, torch.ones(4, 1, 3, 3), groups=4, padding="same"),
    "conv3d": lambda: F.conv3d(VOLUME, torch.ones(3, 4, 2, 2, 2)),
    "conv_tbc": lambda: F.conv_tbc(LINE, torch.ones(2, 8, 3), torch.ones(3)),
    "conv_transpose1d": lambda: F.conv_transpose1d(LINE, torch.ones(4, 3, 2)),
    "conv_transpose2d": lambda: F.conv_transpose2d(IMAGE, torch.ones(4, 3, 2, 2), stride=2),
    "conv_transpose3d": lambda: F.conv_transpose3d(VOLUME, torch.ones(4, 3, 2, 2, 2)),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(M, N, SIGN[:, 0]),
    "cosine_similarity": lambda: F.cosine_similarity(M, N),
    "cross_entropy": lambda: F.cross_entropy(M, LABELS, label_smoothing=0.1, ignore_index=5),
    "ctc_loss": lambda: F.ctc_loss(
        LONG, torch.tensor([[1, 2], [3, 4]]), torch.tensor([12, 10]), torch.tensor([2, 1])
    ),
    "dropout": lambda: F.dropout(M),
    "dropout1d": lambda: F.dropout1d(LINE),
    "dropout2d": lambda: F.dropout2d(IMAGE),
    "dropout3d": lambda: F.dropout3d(VOLUME),
    "embedding": lambda: F.embedding(INDICES, TABLE, padding_idx=4),
    "embedding_bag": lambda: F.embedding_bag(INDICES, TABLE, mode="max"),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(IMAGE, training=True),
    "fold": lambda: F.fold(torch.ones(2, 8, 9), (4, 4), 2),
    "fractional_max_pool2d": lambda: F.fractional_max_pool2d(IMAGE, 3, output_ratio=(0.5, 0.5)),
    "fractional_max_pool3d": lambda: F.fractional_max_pool3d(VOLUME, 2, output_ratio=0.5),
    "fractional_max_pool2d_with_indices": lambda: F.fractional_max_pool2d(
        IMAGE, 3, output_ratio=(0.5, 0.5), return_indices=True
    ),
    "fractional_max_pool3d_with_indices": lambda: F.fractional_max_pool3d(
        VOLUME, 2, output_ratio=0.5, return_indices=True
    ),
    "gaussian_nll_loss": lambda: F.gaussian_nll_loss(M, N, P),
    "glu": lambda: F.glu(M),
    "grid_sample": lambda: F.grid_sample(IMAGE, GRID, align_corners=False),
    "group_norm": lambda: F.group_norm(IMAGE, 2),
    "gumbel_softmax": lambda: F.gumbel_softmax(M, hard=True),
    "hinge_embedding_loss": lambda: F.hinge_embedding_loss(M, SIGN),
    "instance_norm": lambda: F.instance_norm(IMAGE),
    "interpolate": lambda: F.interpolate(IMAGE, scale_factor=1.5, mode="bicubic"),
    "kl_div": lambda: F.kl_div(M, P, reduction="batchmean"),
    "layer_norm": lambda: F.layer_norm(M, (6,), V),
    "linear": lambda: F.linear(M, N, V[:4]),
    "linear_cross_entropy": lambda: F.linear_cross_entropy(M, torch.ones(8, 6), LABELS),
    "local_response_norm": lambda: F.local_response_norm(IMAGE, 2),
    "log_softmax": lambda: F.log_softmax(M, 1),
    "lp_pool1d": lambda: F.lp_pool1d(LINE, 2, 2),
    "lp_pool2d": lambda: F.lp_pool2d(IMAGE, 2, 2),
    "lp_pool3d": lambda: F.lp_pool3d(VOLUME, 2, 2),
    "margin_ranking_loss": lambda: F.margin_ranking_loss(M, N, SIGN),
    "max_pool1d": lambda: F.max_pool1d(LINE, 2),
    "max_pool2d": lambda: F.max_pool2d(IMAGE, 3, 2, 1),
    "max_pool3d": lambda: F.max_pool3d(VOLUME, 2),
    "max_pool1d_with_indices": lambda: F.max_pool1d(LINE, 2, return_indices=True),
    "max_pool2d_with_indices": lambda: F.max_pool2d(IMAGE, 2, return_indices=True),
    "max_pool3d_with_indices": lambda: F.max_pool3d(VOLUME, 2, return_indices=True),
    "max_unpool1d": lambda: F.max_unpool1d(POOLED1, WHERE1, 2),
    "max_unpool2d": lambda: F.max_unpool2d(POOLED, WHERE, 2),
    "max_unpool3d": lambda: F.max_unpool3d(POOLED3, WHERE3, 2),
    "multi_head_attention_forward": attention,
    "multi_margin_loss": lambda: F.multi_margin_loss(M, LABELS),
    "multilabel_margin_loss": lambda: F.multilabel_margin_loss(M, MANY),
    "multilabel_soft_margin_loss": lambda: F.multilabel_soft_margin_loss(M, P.round()),
    "native_channel_shuffle": lambda: F.native_channel_shuffle(IMAGE, 2),
    "nll_loss": lambda: F.nll_loss(F.log_softmax(M, 1), LABELS, V.abs()),
    "normalize": lambda: F.normalize(M, dim=0),
    "one_hot": lambda: F.one_hot(LABELS, 7),
    "pad": lambda: F.pad(IMAGE, (1, 2, 2, 1), mode="reflect"),
    "pairwise_distance": lambda: F.pairwise_distance(M, N),
    "pdist": lambda: F.pdist(M),
    "pixel_shuffle": lambda: F.pixel_shuffle(IMAGE, 2),
    "pixel_unshuffle": lambda: F.pixel_unshuffle(IMAGE, 2),
    "poisson_nll_loss": lambda: F.poisson_nll_loss(M, P),
    "prelu": lambda: F.prelu(M, torch.tensor([0.2])),
    "rms_norm": lambda: F.rms_norm(M, (6,), V),
    "rrelu": lambda: F.rrelu(M, training=True),
    "rrelu_": lambda: F.rrelu_(M.clone(), training=True),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        IMAGE, IMAGE, IMAGE, is_causal=True
    ),
    "soft_margin_loss": lambda: F.soft_margin_loss(M, SIGN),
    "softmax": lambda: F.softmax(M, 0),
    "softmin": lambda: F.softmin(M, 1),
    "threshold": lambda: F.threshold(M, 0.1, 20.0),
    "threshold_": lambda: F.threshold_(M.clone(), 0.1, 20.0),
    "triplet_margin_loss": lambda: F.triplet_margin_loss(M, N, P, swap=True),
    "triplet_margin_with_distance_loss": lambda: F.triplet_margin_with_distance_loss(M, N, P),
    "unfold": lambda: F.unfold(IMAGE, 3, padding=1),
    "upsample": lambda: F.upsample(IMAGE, scale_factor=2),
    "upsample_bilinear": lambda: F.upsample_bilinear(IMAGE, scale_factor=2),
    "upsample_nearest": lambda: F.upsample_nearest(IMAGE, scale_factor=2),
}

NO_OPERATION = """
    assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function
    has_torch_function_unary has_torch_function_variadic
"""
"""What stands in the module and computes nothing."""

FOR_CUDA = ("grouped_mm", "scaled_grouped_mm", "scaled_mm")
"""Functions for types and devices that a CPU does not have."""

BREAKS = {
    "ctc_loss": "gives a result that depends on the values of a tensor",  # how long the paths are
}
"""By function: why it is not captured as one graph. It runs all the same, around a graph break."""


def test_the_table_is_whole() -> None:
    functions = {
        name
        for name, value in vars(F).items()
        if not name.startswith("_")
        and isinstance(value, types.FunctionType | types.BuiltinFunctionType)
    }
    assert functions <= {*CASES, *NO_OPERATION.split(), *FOR_CUDA}


@pytest.mark.parametrize("name", [name for name in CASES if hasattr(F, name)])  # 2.13 has more
@pytest.mark.filterwarnings("ignore")
def test_function(name: str) -> None:
    case = CASES[name]
    compiled = fusewright.compile(case, fullgraph=True, options={"strict": True})
    torch.manual_seed(1)
    expected = case()
    torch.manual_seed(1)
    if name in BREAKS:
        with pytest.raises(Unsupported, match=BREAKS[name]):
            compiled()
        torch.testing.assert_close(fusewright.compile(case)(), expected)
        return
    torch.testing.assert_close(compiled(), expected, check_stride=True)
    assert len(fusewright.compilations(compiled)) == 1
