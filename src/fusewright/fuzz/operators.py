"""The operators that random tensor programs are made of: one line of text each.

Names in braces are filled in by `tensors.py`, from left to right:

    {x} {x:f2+}   a tensor; f: of floats, i: of integers, b: of bools, n: not bool; 2: of two
                  dimensions, 2+: of two or more, s: square in the last two
    {y} {y:f}     another that broadcasts with x, or a number
    {t} {t:f}     a tensor that broadcasts with x
    {same}        a tensor of the shape of x, maybe x itself
    {into}        a tensor that x may be written to: of a shape that x broadcasts to
    {mask}        bools of the shape of x
    {dim} {dim2}  a dimension of x, and another one
    {dims}        one dimension, or some of them
    {index}       a tensor of positions along that dimension; {position} one position
    {item}        what stands in brackets behind x: positions, slices, None, ...
    {number}      a small number of the kind of x; {float} one with a fraction; {int} 0 to 4
    {flag} {dtype} {float_dtype} {shape} {perm} {sizes} {reduce}
    {matrix}      a tensor that x may be multiplied by, as matrices
    {kernel}      weights of a convolution over x
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


POINTWISE: Final = _words(
    """
    abs neg sign square positive sgn
    """
)

FLOAT_FUNCTIONS: Final = _words(
    """
    acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac lgamma
    log log10 log1p log2 logit reciprocal round rsqrt sigmoid sin sinc sinh sqrt tan tanh trunc
    digamma nan_to_num deg2rad rad2deg special.i0 special.i1 special.i0e special.i1e special.ndtri
    special.log_ndtr special.entr signbit isnan isinf isfinite isneginf isposinf angle i0
    special.ndtr special.bessel_j0 special.bessel_j1 special.erfcx
    """
)

ACTIVATIONS: Final = _words(
    """
    relu gelu silu softplus elu selu celu leaky_relu hardtanh relu6 mish logsigmoid softsign
    tanhshrink hardswish hardsigmoid hardshrink softshrink tanh sigmoid
    """
)

BINARY: Final = _words(
    """
    add sub mul maximum minimum fmax fmin eq ne lt le gt ge div true_divide atan2 hypot copysign
    logaddexp logaddexp2 nextafter xlogy fmod remainder floor_divide rsub pow float_power heaviside
    special.xlogy special.xlog1py
    """
)

INTEGER_BINARY: Final = _words(
    """
    bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor gcd lcm
    """
)

LOSSES: Final = _words(
    """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits poisson_nll_loss
    soft_margin_loss kl_div hinge_embedding_loss
    """
)


Templates = tuple[str, ...]

POINTWISE_TEMPLATES: Final[Templates] = (
    *(f"torch.{name}({{x:n}})" for name in POINTWISE),
    *(f"torch.{name}({{x:f}})" for name in FLOAT_FUNCTIONS),
    "torch.sin({x})",
    "torch.exp({x})",
    "torch.sqrt({x})",
    "torch.logical_not({x})",
    "torch.bitwise_not({x:i})",
    "~{x:b}",
    "-{x:n}",
    "{x:f}.clamp({number}, 3)",
    "{x:n}.clamp(min={number})",
    "torch.clamp_min({x:n}, {number})",
    "torch.clamp_max({x:n}, {t:n})",
    "{x:f}.clamp(max={t:f})",
    "torch.clip({x:f}, {number}, {number})",
    "torch.round({x:f}, decimals={int})",
    "torch.nan_to_num({x:f}, {number}, posinf={number})",
    "torch.polygamma({int}, {x:f})",
    "torch.mvlgamma({x:f} + 5, 2)",
    "torch.special.polygamma(1, {x:f})",
    "torch.frexp({x:f}).mantissa",
    "torch.nan_to_num({x:f}, 0.0).clamp(-90, 90).to({dtype})",
    "{x:n}.to({float_dtype})",
    "{x:b}.to({dtype})",
    "{x:i}.to({dtype})",
    "{x}.bool()",
    "{x:f}.float()",
    "{x:f}.half()",
    "{x:f}.double()",
    "{x:n}.type_as({same})",
    "torch.where({mask}, {x}, {y})",
    "torch.where({x:b}, {t}, {number})",
    "torch.where({mask}, {x}, torch.zeros_like({x}))",
    "torch.masked_fill({x}, {mask}, {number})",
    "{x:f}.lerp({same:f}, {float})",
    "torch.lerp({x:f}, {same}, {same})",
    "torch.addcmul({x:f}, {t:f}, {t:f}, value={float})",
    "torch.addcdiv({x:f}, {t:f}, {t:f}, value={float})",
    "torch.ldexp({x:f}, {t:i})",
    "torch.isclose({x:f}, {same:f}, atol=1e-3)",
    "torch.isin({x:i}, {t:i})",
    "{x:n} ** {int}",
    "{int} ** {x:f}",
    "{float} / {x:f}",
    "1 - {x:n}",
    "{x:i} // 3",
    "{x:n} % 3",
    "{x:i} << {int}",
    "{x:i} >> {int}",
    "{x:i} & {number}",
    "{x:i} << ({t:i} & 7)",
    "{x:i} >> ({t:i} & 7)",
    "torch.bitwise_left_shift({x:i}, {int})",
    "3 & {x:i}",
    "{x:i} | 5",
    "{x:i} ^ 6",
    "7 % {x:i}",
    "torch.floor_divide({x:n}, {int} + 1)",
    "{x:f}.pow({float})",
)

ACTIVATION_TEMPLATES: Final[Templates] = (
    *(f"F.{name}({{x:f}})" for name in ACTIVATIONS),
    "F.gelu({x:f}, approximate='tanh')",
    "F.softplus({x:f}, beta={float}, threshold=2)",
    "F.elu({x:f}, {float})",
    "F.leaky_relu({x:f}, {float})",
    "F.threshold({x:f}, {float}, {number})",
    "F.hardtanh({x:f}, -{float}, {float})",
    "F.prelu({x:f2+}, torch.full((1,), {float}, dtype={x}.dtype))",
    "F.glu({x:f1+}, {dim})",
    "F.rrelu({x:f}, training=False)",
    "F.dropout({x:f}, 0.5, training=False)",
    "F.dropout({x:f}, 0.0)",
    "F.softmax({x:f1+}, {dim})",
    "F.log_softmax({x:f1+}, {dim})",
    "F.softmin({x:f1+}, {dim})",
    "torch.softmax({x:f1+}, {dim}, dtype={float_dtype})",
    "F.normalize({x:f1+}, dim={dim})",
)

BINARY_TEMPLATES: Final[Templates] = (
    *(f"torch.{name}({{x:n}}, {{y:n}})" for name in BINARY if name != "nextafter"),
    *(f"torch.{name}({{x:i}}, {{t:i}})" for name in INTEGER_BINARY),
    "torch.nextafter({x:f}, {same})",
    "torch.logical_and({x}, {t})",
    "torch.logical_xor({x}, {t})",
    "{x:b} & {t:b}",
    "{x:b} | {t:b}",
    "{x} + {y}",
    "{x:n} - {y:n}",
    "{x} * {y}",
    "{x} / {y}",
    "{x:n} == {y}",
    "{x:n} < {y}",
    "{y:n} >= {x:n}",
    "{y:n} - {x:n}",
    "torch.add({x:n}, {t:n}, alpha={int})",
    "torch.sub({x:n}, {t:n}, alpha={int})",
    "torch.rsub({x:n}, {t:n}, alpha={int})",
    "torch.div({x:n}, {y:n}, rounding_mode='floor')",
    "torch.div({x:n}, {y:n}, rounding_mode='trunc')",
    "torch.outer({x:1}, {x})",
    "torch.cross({x:f2+}, {same}, dim={dim})",
)

REDUCTION_TEMPLATES: Final[Templates] = (
    "{x}.sum()",
    "{x}.sum({dims})",
    "{x}.sum({dims}, keepdim=True)",
    "torch.sum({x}, {dim}, dtype={float_dtype})",
    "{x:f}.mean()",
    "{x:f}.mean({dims})",
    "{x:f}.mean({dims}, keepdim={flag})",
    "{x}.prod()",
    "{x}.prod({dim})",
    "{x}.amax({dims})",
    "{x}.amin({dims}, keepdim={flag})",
    "{x}.max()",
    "{x}.min()",
    "{x}.max({dim}).values",
    "{x}.max({dim}).indices",
    "{x}.min({dim}, keepdim={flag})[0]",
    "{x}.all()",
    "{x}.any({dim})",
    "{x}.all({dim}, keepdim={flag})",
    "torch.all({x}, ({dim},))",
    "torch.any({x}, {dims})",
    "{x:f}.logsumexp({dims})",
    "{x:f}.std()",
    "{x:f}.var({dims})",
    "{x:f}.std({dims}, correction={int}, keepdim={flag})",
    "torch.var({x:f}, {dims}, unbiased={flag})",
    "torch.var_mean({x:f}, {dims}, correction=0)[0]",
    "torch.std_mean({x:f})[1]",
    "{x}.argmax()",
    "{x:n}.argmax({dim}, keepdim={flag})",
    "{x:n}.argmin({dim})",
    "{x:f}.nansum()",
    "{x:f}.nansum({dim})",
    "{x:f}.nanmean()",
    "{x:f}.nanmean({dim}, keepdim={flag})",
    "{x:f}.norm()",
    "torch.norm({x:f}, {int}, {dim})",
    "torch.linalg.vector_norm({x:f}, {number}, {dim})",
    "torch.linalg.norm({x:f})",
    "torch.count_nonzero({x})",
    "torch.count_nonzero({x}, {dim})",
    "{x:n}.median()",
    "{x:n}.median({dim}).values",
    "{x:f}.nanmedian()",
    "{x:n}.kthvalue(1, {dim}).values",
    "{x:f}.quantile({float} / 10)",
    "torch.aminmax({x:n})[1]",
    "torch.aminmax({x:n}, dim={dim})[0]",
    "torch.dist({x:f}, {same})",
    "{x:n}.diff(dim={dim})",
    "torch.trapezoid({x:f1+}, dim={dim})",
    "torch.bincount({x:i1}.abs() % 7)",
    "torch.histc({x:f}.clamp(-3, 3), bins=4, min=-3, max=3)",
)

SCAN_TEMPLATES: Final[Templates] = (
    "torch.cumsum({x}, {dim})",
    "torch.cumsum({x}, {dim}, dtype={float_dtype})",
    "torch.cumprod({x:f}, {dim})",
    "torch.cummax({x:n}, {dim}).values",
    "torch.cummin({x:n}, {dim})[1]",
    "torch.logcumsumexp({x:f}, {dim})",
    "torch.sort({x}, {dim}, descending={flag}, stable=True).values",
    "torch.sort({x}, {dim}, stable=True)[1]",
    "torch.argsort({x:n}, {dim}, stable=True)",
    "torch.topk({x:n1+}, 1, {dim})[0]",
    "torch.msort({x:n1+})",
    "torch.searchsorted({x:f1}.sort().values.contiguous(), {t:f}.contiguous())",
    "torch.bucketize({x:f}, torch.tensor([-1.0, 0.0, 2.0]))",
)

VIEW_TEMPLATES: Final[Templates] = (
    "{x}.view({shape})",
    "{x}.reshape({shape})",
    "{x}.reshape(-1)",
    "{x}.flatten()",
    "{x:2+}.flatten(0, 1)",
    "{x:2+}.flatten(-2)",
    "{x}.t()",
    "{x:2+}.mT",
    "{x}.transpose({dim}, {dim2})",
    "{x}.permute({perm})",
    "{x}.unsqueeze({dim})",
    "{x}.unsqueeze(-1)",
    "{x}.squeeze()",
    "{x}.squeeze({dim})",
    "{x}.squeeze(({dim},))",
    "{x}.expand({sizes})",
    "{x}.expand_as({t})",
    "{x}.broadcast_to({sizes})",
    "{x}.narrow({dim}, 0, 1)",
    "{x}.select({dim}, {position})",
    "{x}.unfold({dim}, 1, 1)",
    "{x}.unfold({dim}, 2, 1)",
    "{x}.diagonal()",
    "{x:2+}.diagonal({int}, {dim}, {dim2})",
    "{x}.movedim({dim}, {dim2})",
    "{x}.swapaxes({dim}, {dim2})",
    "{x}[{item}]",
    "{x}[{item}]",
    "{x}[{item}]",
    "{x}.unbind({dim})[0]",
    "{x}.chunk(2, {dim})[0]",
    "{x}.split(1, {dim})[-1]",
    "torch.tensor_split({x}, 2, {dim})[1]",
    "{x}.view_as({same})",
    "{x}.contiguous()",
    "{x}.clone()",
    "{x}.detach()",
    "torch.view_copy({x}, (-1,))",
    "torch.transpose_copy({x:2+}, 0, -1)",
    "torch.select_copy({x:1+}, {dim}, {position})",
    "torch.slice_copy({x:1+}, {dim}, 1, 5, 2)",
    "torch.unsqueeze_copy({x}, 0)",
    "torch.squeeze_copy({x}, {dim})",
    "torch.expand_copy({x}, {sizes})",
    "torch.permute_copy({x}, [{perm}])",
    "torch.narrow_copy({x:1+}, {dim}, 0, 1)",
    "torch.unbind_copy({x:1+}, {dim})[0]",
    "torch.atleast_2d({x})",
    "torch.atleast_3d({x})",
    "torch.ravel({x})",
    "{x:4}.contiguous(memory_format=torch.channels_last)",
    "{x:1+}.as_strided((2,), (1,))",
    "torch.real({x:f})",
    "{x:f}.view({x}.dtype)",
    "{x:f1+}.unflatten({dim}, (1, -1))",
)

REARRANGE_TEMPLATES: Final[Templates] = (
    "torch.cat([{x:1+}, {same}], {dim})",
    "torch.cat([{x:1+}, {x}, {same}], {dim})",
    "torch.stack([{x}, {same}], {dim})",
    "torch.stack([{x}, {same}])",
    "torch.hstack([{x}, {same}])",
    "torch.vstack([{x}, {same}])",
    "torch.dstack([{x}, {same}])",
    "torch.column_stack([{x}, {same}])",
    "{x}.repeat({sizes})",
    "{x}.tile([{int}])",
    "{x}.tile([2, 1])",
    "{x}.repeat_interleave(2, {dim})",
    "{x}.flip({dims})",
    "torch.fliplr({x:2+})",
    "{x}.roll({int}, {dim})",
    "{x}.roll({int})",
    "torch.rot90({x:2+}, {int})",
    "{x:2+}.tril({int})",
    "{x:2+}.triu(-{int})",
    "torch.diag({x})",
    "torch.diag_embed({x})",
    "torch.diagflat({x})",
    "F.pad({x}, (1, {int}))",
    "F.pad({x:2+}, (0, 1, {int}, 1), value={number})",
    "F.pad({x:1+}, (-1, {int}))",
    "F.pad({x:f3}, (1, 1), mode='reflect')",
    "F.pad({x:f3}, (1, 2), mode='replicate')",
    "F.pad({x:f3}, (1, 1), mode='circular')",
    "F.pad({x:f4}, (1, 1, 0, 1), mode='reflect')",
    "torch.meshgrid({x:1}, {x}, indexing='ij')[0]",
    "torch.cartesian_prod({x:1}, {x})",
    "torch.combinations({x:1})",
    "torch.kron({x}, {same})",
    "torch.block_diag({x:2}, {same})",
    "torch.broadcast_tensors({x}, {t})[0]",
    "F.pixel_shuffle({x:4}, 1)",
    "F.one_hot({x:i}.long().abs() % 5, 5)",
    "F.unfold({x:f4}, (1, 2))",
)

INDEX_TEMPLATES: Final[Templates] = (
    "torch.index_select({x}, {dim}, {index})",
    "{x}[{index0}]",
    "{x:2+}[:, {index1}]",
    "{x}[..., {indexlast}]",
    "{x:2+}[{index0}, {index1}]",
    "{x}[{mask}]",
    "torch.gather({x:1+}, {dim}, {positions})",
    "torch.take_along_dim({x:1+}, {positions}, {dim})",
    "torch.take({x}, torch.tensor([0, -1]))",
    "torch.scatter({x:1+}, {dim}, {positions}, {same})",
    "torch.scatter({x:1+}, {dim}, {positions}, {number})",
    "torch.scatter_add({x:n1+}, {dim}, {positions}, {same})",
    "torch.scatter_reduce({x:n1+}, {dim}, {positions}, {same}, {reduce}, include_self={flag})",
    "torch.index_add({x:n1+}, {dim}, {index}, {x}.index_select({dim_again}, {index_again}))",
    "torch.index_copy({x:1+}, {dim}, {index}, {x}.index_select({dim_again}, {index_again}))",
    "torch.index_fill({x:1+}, {dim}, {index}, {number})",
    "torch.index_reduce({x:f1+}, {dim}, {index}, {x}.index_select({dim_again}, {index_again}),"
    " 'mean')",
    "torch.index_put({x:1+}, ({index0},), {x}[0])",
    "torch.index_put({x:n1+}, ({index0},), {x}[0], accumulate=True)",
    "torch.masked_select({x}, {mask})",
    "torch.masked_scatter({x}, {mask}, {same})",
    "torch.select_scatter({x:1+}, {x}.select({dim}, 0), {dim_again}, -1)",
    "torch.slice_scatter({x:1+}, {x}.narrow({dim}, 0, 1), {dim_again}, 0, 1)",
    "torch.diagonal_scatter({x:2s}, {x}.diagonal() + 1)",
    "torch.scatter({x:n1+}, {dim}, {positions}, {same}, reduce='add')",
    "torch.scatter({x:n1+}, {dim}, {positions}, {number}, reduce='multiply')",
    "{x}[{mask}].reshape(-1, 2)",
    "{x:n}[{mask}].max()",
    "{x:n}[{mask}].argmin()",
    "torch.nonzero({x}).reshape(-1)",
    "torch.nonzero({x}).t().contiguous()",
    "torch.where({x})[0]",
    "torch.unique({x:n})",
    "F.embedding({x:i}.long().abs() % 4, torch.arange(12.0).view(4, 3))",
    "F.embedding({index0}, {x:f2})",
    "F.embedding_bag({index2}, {x:f2}, mode='mean')",
    "torch.nonzero({x})",
    "torch.argwhere({x})",
)

PRODUCT_TEMPLATES: Final[Templates] = (
    "torch.matmul({x:f1+}, {matrix})",
    "{x:f2+} @ {matrix}",
    "torch.mm({x:f2}, {matrix2})",
    "torch.mv({x:f2}, {vector})",
    "torch.dot({x:1}, {x})",
    "torch.vdot({x:f1}, {same})",
    "torch.inner({x:f1+}, {x})",
    "torch.bmm({x:f3}, {matrix})",
    "torch.baddbmm({x:f3}[:, :1, :1], {x}, {matrix}, beta={float}, alpha={float})",
    "torch.addmm({x:f2}[:1, :1], {x}, {matrix2}, beta={float})",
    "torch.einsum('...ij,...kj->...ik', {x:f2+}, {x})",
    "torch.einsum('ij->j', {x:2})",
    "torch.einsum('ij,j->ij', {x:f2}, {vector})",
    "torch.einsum('bij,bij->b', {x:f3}, {same})",
    "torch.tensordot({x:f2}, {same}, dims=2)",
    "F.linear({x:f1+}, {rows})",
    "F.linear({x:f1+}, {rows}, torch.full((3,), {float}, dtype={x}.dtype))",
    "F.bilinear({x:f2}, {x}, torch.ones(2, {x}.shape[-1], {x}.shape[-1], dtype={x}.dtype))",
    "torch.cdist({x:f2+}, {x} + 1)",
    "torch.pdist({x:f2})",
    "torch.trace({x:2})",
    "torch.linalg.det({x:f2s})",
    "torch.linalg.inv({x:f2s} + 9 * torch.eye({x}.shape[-1], dtype={x}.dtype))",
    "torch.linalg.solve({x:f2s} + 9 * torch.eye({x}.shape[-1], dtype={x}.dtype), {x})",
    "torch.linalg.cholesky({x:f2} @ {x}.mT + 3 * torch.eye({x}.shape[0], dtype={x}.dtype))",
    "torch.linalg.matrix_power({x:f2s}, {int})",
    "torch.matrix_exp({x:f2s}.clamp(-1, 1))",
    "torch.linalg.multi_dot([{x:f2}, {x}.t(), {x}])",
    "F.scaled_dot_product_attention({x:f3}, {x}, {x})",
    "F.scaled_dot_product_attention({x:f4}, {x}, {same}, is_causal={flag})",
    "F.scaled_dot_product_attention({x:f3}, {same}, {x}, attn_mask=torch.ones({x}.shape[-2],"
    " {x}.shape[-2], dtype=torch.bool).tril())",
    "F.cosine_similarity({x:f1+}, {same}, dim={dim})",
    "F.pairwise_distance({x:f2}, {same})",
    "torch.vander({x:f1}, 3)",
    "torch.cov({x:f2})",
    "torch.corrcoef({x:f2})",
    "torch.renorm({x:f2+}, 2, 0, {float})",
)

NETWORK_TEMPLATES: Final[Templates] = (
    "F.layer_norm({x:f1+}, {x}.shape[-1:])",
    "F.layer_norm({x:f2+}, {x}.shape[-2:], eps=1e-3)",
    "F.layer_norm({x:f1+}, {x}.shape[-1:], torch.full({x}.shape[-1:], {float}, dtype={x}.dtype))",
    "F.rms_norm({x:f1+}, {x}.shape[-1:])",
    "F.group_norm({x:f3+}, 1)",
    "F.instance_norm({x:f3+})",
    "F.batch_norm({x:f2+}, None, None, training=True)",
    "F.batch_norm({x:f2+}, torch.zeros({x}.shape[1], dtype={x}.dtype),"
    " torch.ones({x}.shape[1], dtype={x}.dtype))",
    "F.local_response_norm({x:f3+}, 2)",
    "F.conv1d({x:f3}, {kernel})",
    "F.conv1d({x:f3}, {kernel}, padding={int}, stride=2)",
    "F.conv2d({x:f4}, {kernel})",
    "F.conv2d({x:f4}, {kernel}, padding=1, dilation=1)",
    "F.conv_transpose1d({x:f3}, {kernel}.transpose(0, 1))",
    "F.conv_transpose2d({x:f4}, {kernel}.transpose(0, 1), stride=2)",
    "F.max_pool1d({x:f3}, 2)",
    "F.max_pool2d({x:f4}, 2, stride=1)",
    "F.max_pool2d({x:f4}, 2, padding=1, ceil_mode={flag})",
    "F.avg_pool1d({x:f3}, 2, padding=1)",
    "F.avg_pool2d({x:f4}, 2, stride=1, ceil_mode={flag}, count_include_pad={flag})",
    "F.adaptive_avg_pool1d({x:f3}, 2)",
    "F.adaptive_avg_pool2d({x:f4}, ({x}.shape[-1], 2))",
    "F.adaptive_max_pool1d({x:f3}, 2)",
    "F.lp_pool1d({x:f3}, 2, 2)",
    "F.interpolate({x:f3}, scale_factor=2)",
    "F.interpolate({x:f3}, size=5, mode='linear', align_corners={flag})",
    "F.interpolate({x:f4}, size=(3, 5), mode='bilinear', align_corners={flag})",
    "F.interpolate({x:f4}, scale_factor=1.5, mode='nearest')",
    "F.interpolate({x:f4}, size=(4, 3), mode='bicubic')",
    "F.interpolate({x:f3}, size=3, mode='nearest-exact')",
    "F.interpolate({x:f3}, size=2, mode='area')",
    "F.grid_sample({x:f4}, torch.linspace(-1, 1, 8, dtype={x}.dtype).view(1, 2, 2, 2)"
    ".expand({x}.shape[0], 2, 2, 2), align_corners={flag})",
    *(f"F.{name}({{x:f}}, {{same:f}})" for name in LOSSES),
    *(f"F.{name}({{x:f}}, {{same:f}}, reduction='none')" for name in LOSSES[:4]),
    "F.huber_loss({x:f}, {same:f}, delta={float})",
    "F.smooth_l1_loss({x:f}, {same:f}, beta={float}, reduction='sum')",
    "F.cross_entropy({x:f2}, torch.arange({x}.shape[0]) % {x}.shape[1])",
    "F.cross_entropy({x:f2}, torch.arange({x}.shape[0]) % {x}.shape[1], reduction='none',"
    " label_smoothing=0.1)",
    "F.cross_entropy({x:f2}, {same:f})",
    "F.nll_loss({x:f2}, torch.arange({x}.shape[0]) % {x}.shape[1], ignore_index=1)",
    "F.binary_cross_entropy({x:f}.sigmoid(), {same:f}.sigmoid())",
    "F.cosine_embedding_loss({x:f2}, {same}, torch.ones({x}.shape[0]))",
    "F.margin_ranking_loss({x:f}, {same:f}, torch.ones_like({x}))",
    "F.triplet_margin_loss({x:f2}, {same}, {x} + 1)",
    "F.gaussian_nll_loss({x:f}, {same:f}, torch.ones_like({x}))",
    "F.multilabel_soft_margin_loss({x:f2}, {same:f})",
)

FACTORY_TEMPLATES: Final[Templates] = (
    "torch.zeros_like({x})",
    "torch.ones_like({x}, dtype={dtype})",
    "torch.full_like({x}, {number})",
    "torch.full({x}.shape, {number})",
    "torch.zeros({x}.shape, dtype={dtype})",
    "{x}.new_zeros({sizes})",
    "{x}.new_full((2, 3), {number})",
    "torch.empty_like({x}).copy_({x})",
    "torch.empty_like({x}).fill_({number})",
    "torch.arange({int})",
    "torch.arange({x:1+}.shape[0])",
    "torch.arange({x:1+}.shape[0], dtype={dtype})",
    "torch.arange(0, {int} + 1, 0.5)",
    "torch.linspace(-1, {float}, {int} + 1)",
    "torch.eye({int} + 1)",
    "torch.tensor([{number}, {number}])",
    "torch.tensor({number})",
    "torch.tril_indices({int}, 3)",
    "torch.logspace(0, 1, 3)",
    "torch.ones(({int}, 2), dtype={dtype})",
    "torch.scalar_tensor({float})",
    "torch.tensor({x:1+}.shape[0])",
)

WRITE_TEMPLATES: Final[Templates] = (
    "{into}.add_({y:n})",
    "{into}.sub_({t:n}, alpha={int})",
    "{into}.mul_({y:n})",
    "{into}.copy_({x})",
    "{into}.copy_({t})",
    "{x:n}.add_(1)",
    "{x}.zero_()",
    "{x}.fill_({number})",
    "{x:f}.sin_()",
    "{x:f}.relu_()",
    "{x:f}.clamp_(-1, {float})",
    "{x:f}.div_({float})",
    "{x:f}.pow_(2)",
    "{x:n}.neg_()",
    "{x:f}.sigmoid_()",
    "{x:b}.logical_not_()",
    "{x}.masked_fill_({mask}, {number})",
    "{x:1+}[{item}] = {number}",
    "{x:1+}[0] = {number}",
    "{x:1+}[0] = {x}[-1].clone()",
    "{x:1+}[..., 1:] = {x}[..., :-1].clone()",
    "{x:1+}[{mask}] = {number}",
    "{x:1+}[{index0}] = {number}",
    "{x:n}[{item}] += {number}",
    "{x:n1+}[0].add_(1)",
    "{x:n2+}.t().add_(1)",
    "{x:n1+}[1:].mul_(2)",
    "{x:n}.view(-1).add_({number})",
    "{x:2+}.transpose(0, 1).copy_({x}.transpose(0, 1) + 1)",
    "{x:2+}.diagonal().fill_({number})",
    "{x:2+}.fill_diagonal_(2)",
    "{x:1+}.index_fill_({dim}, {index}, {number})",
    "{x:n1+}.index_add_({dim}, {index}, {x}.index_select({dim_again}, {index_again}))",
    "{x:1+}.index_copy_({dim}, {index}, {x}.index_select({dim_again}, {index_again}))",
    "{x:1+}.scatter_({dim}, {positions}, {number})",
    "{x:n1+}.scatter_add_({dim}, {positions}, {same})",
    "{x:1+}.index_put_(({index0},), {x}[0].clone(), accumulate={flag})",
    "{x}.unsqueeze_(0)",
    "{x}.squeeze_()",
    "{x}.t_()",
    "{x:2+}.transpose_(0, 1)",
    "{x:f}.lerp_({same:f}, {float})",
    "{x:f}.addcmul_({t:f}, {t:f})",
    "{x:n}.cumsum_({dim})",
    "{x:2+}.tril_()",
    "{x}.set_({x}.clone())",
    "torch.add({x:n}, {t:n}, out={into})",
    "torch.mul({x:n}, {y:n}, out={into})",
    "torch.sin({x:f}, out={into})",
    "torch.maximum({x:n}, {t:n}, out={into})",
    "F.relu({x:f}, inplace=True)",
    "F.dropout({x:f}, 0.0, inplace=True)",
)

OUT_TEMPLATES: Final[Templates] = (
    "torch.exp({x:f}, out=torch.empty_like({x}))",
    "torch.cat([{x:1+}, {x}], out=torch.empty(0, dtype={x}.dtype))",
    "torch.sum({x:f1+}, {dim}, out=torch.empty(0, dtype={x}.dtype))",
    "torch.matmul({x:f2}, {matrix2}, out=torch.empty(0, dtype={x}.dtype))",
    "torch.add({x:n}, {x}, out=torch.empty({x}.shape, dtype={x}.dtype))",
)

COMPLEX_TEMPLATES: Final[Templates] = (
    "torch.complex({x:f}, {same:f})",
    "torch.polar({x:f}.abs(), {same:f})",
    "torch.view_as_real({x:c})",
    "{x:c}.real",
    "{x:c}.imag",
    "{x:c}.conj()",
    "{x:c}.abs()",
    "torch.angle({x:c})",
    "{x:c} * {same:c}",
    "{x:c}.exp()",
    "{x:c}.sum()",
    "torch.fft.fft({x:f1+})",
    "torch.fft.rfft({x:f1+})",
    "torch.fft.irfft({x:c1+})",
)

GROUPS: Final[tuple[tuple[float, Templates], ...]] = (
    (20, POINTWISE_TEMPLATES),
    (6, ACTIVATION_TEMPLATES),
    (18, BINARY_TEMPLATES),
    (16, REDUCTION_TEMPLATES),
    (5, SCAN_TEMPLATES),
    (16, VIEW_TEMPLATES),
    (10, REARRANGE_TEMPLATES),
    (10, INDEX_TEMPLATES),
    (9, PRODUCT_TEMPLATES),
    (11, NETWORK_TEMPLATES),
    (4, FACTORY_TEMPLATES),
    (14, WRITE_TEMPLATES),
    (1.5, OUT_TEMPLATES),
    (1.5, COMPLEX_TEMPLATES),
)
"""How often operators of each group are taken, relatively."""

WRITES: Final = frozenset(WRITE_TEMPLATES)
"""Templates that are statements: they write to a tensor, and have no result."""
