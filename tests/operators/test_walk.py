"""A part of torch's operator samples through all stages beside eager; all of them:
`python -m tests.operators.walk`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fusewright.lower.rules import words
from tests.lower.support import leaves
from tests.operators import walk as walking
from tests.operators.gradient_stage import assert_equals_share
from tests.operators.samples import name_of, picks_other_equals
from tests.operators.walk import STAGES, Outcome, Sample, main, operators, walk

LOOPS = words(
    """
    abs add addcdiv addcmul all amax amin any arange argmax argmin atan2 bitwise_and bitwise_not
    bitwise_or cat ceil clamp clone constant_pad_nd copysign cos cummax cummin cumprod cumsum
    diagonal div eq erf exp expand expm1 eye fill flip floor fmax fmin full_like gather ge gt hypot
    index_add index_select isfinite isinf isnan le lerp log log1p log_softmax logaddexp logcumsumexp
    logical_and logical_not logsumexp lt masked_fill max maximum mean min minimum mul ne neg
    nn.functional.avg_pool2d nn.functional.celu nn.functional.elu nn.functional.embedding
    nn.functional.gelu nn.functional.max_pool2d
    nn.functional.glu nn.functional.group_norm nn.functional.hardsigmoid nn.functional.hardswish
    nn.functional.hardtanh nn.functional.interpolate nn.functional.layer_norm
    nn.functional.leaky_relu nn.functional.mish
    nn.functional.pad nn.functional.relu nn.functional.rms_norm nn.functional.silu
    nn.functional.softplus permute pow prod reciprocal repeat reshape roll round rsqrt rsub scatter
    scatter_add select select_scatter sigmoid sign sin slice slice_scatter softmax sqrt square
    squeeze stack std std_mean sub sum tanh transpose tril triu trunc unbind unfold unsqueeze var
    var_mean view where xlogy zeros_like
    """
)
"""Operators of which every sample here must become loops alone: a lost rule fails the test."""

PARTLY = words(
    """
    roll nn.functional.avg_pool2d nn.functional.pad pow where amax index_add index_select scatter
    nn.functional.embedding nn.functional.interpolate
    """
)
"""Some samples (exotic modes, data-dependent sizes, integers that raise) stay with eager."""

LIBRARY = words(
    """
    addmm bmm linalg.inv matmul nn.functional.conv2d nn.functional.scaled_dot_product_attention put
    topk
    """
)
"""Operators that stay calls."""

OTHERS = words(
    """
    __getitem__ __rpow__ aminmax angle baddbmm count_nonzero fft.fft2 fft.hfftn fft.rfftn
    floor_divide fmod heaviside index_fill isin linalg.eig linspace logaddexp2 logit mm nan_to_num
    nn.functional.batch_norm nn.functional.binary_cross_entropy nn.functional.conv1d
    nn.functional.conv_transpose2d nn.functional.cross_entropy nn.functional.huber_loss
    nn.functional.linear nn.functional.logsigmoid nn.functional.max_unpool2d nn.functional.mse_loss
    nn.functional.nll_loss nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.rrelu nn.functional.smooth_l1_loss nn.functional.soft_margin_loss remainder sinc
    special.entr split split_with_sizes true_divide
    """
)

TYPES = (
    torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.float64, torch.complex64
)  # fmt: skip

DECOMPOSED = words(
    """
    arange aminmax count_nonzero heaviside index_fill logaddexp2 logit nan_to_num
    nn.functional.batch_norm nn.functional.binary_cross_entropy nn.functional.cross_entropy
    nn.functional.huber_loss nn.functional.logsigmoid nn.functional.mse_loss
    nn.functional.nll_loss nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.rrelu nn.functional.smooth_l1_loss nn.functional.soft_margin_loss sinc
    special.entr split split_with_sizes unbind
    """
)
"""Operators of which more samples are decomposed: formulas of many cases."""

COMPILED = words(
    """
    add addcmul amax argmax cat clamp copysign cumsum div embedding exp floor_divide gather
    index_select logsumexp masked_fill matmul max mean nn.functional.batch_norm nn.functional.conv2d
    nn.functional.embedding nn.functional.gelu nn.functional.group_norm nn.functional.layer_norm
    nn.functional.pad nn.functional.softplus pow prod remainder roll softmax std tanh tril unfold
    var_mean where
    """
)
"""Operators of which samples of every type become machine code; of others those of one type."""

BUDGET = {
    "fakes": 10,
    "fakes of other layouts": 10,
    "fakes of any size": 4,
    "decomposition": 4,
    "reference": 4,
    "machine code": 2,
    "machine code of any size": 1,
    "gradients": 1,
}
OTHER_TYPES = {
    "fakes": 10,
    "fakes of other layouts": 10,
    "decomposition": 2,
    "reference": 2,
}


def budget(info: Any, is_first: bool) -> dict[str, int]:
    """How many samples go through each stage: fewer of types beyond an operator's first."""
    most = dict(BUDGET if is_first else OTHER_TYPES)
    if info.name in DECOMPOSED:
        most["decomposition"] = 12
    if info.name in COMPILED:
        most["machine code" if not is_first else "machine code of any size"] = 1 + is_first
    return most


INFOS = {name_of(info): info for info in operators([*LOOPS, *LIBRARY, *OTHERS])}

CASES = [
    pytest.param(info, dtype, number == 0, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name, info in INFOS.items()
    for number, dtype in enumerate(dtype for dtype in TYPES if dtype in info.dtypes)
]


@pytest.mark.parametrize(("info", "dtype", "is_first"), CASES)
def test_every_stage_gives_what_eager_gives(info: Any, dtype: torch.dtype, is_first: bool) -> None:
    outcome = walk(info, dtype, budget(info, is_first))
    assert not outcome.failures, outcome.failures
    assert outcome.samples
    if is_first and not info.variant_test_name:
        check_kind(outcome)


def check_kind(outcome: Outcome) -> None:
    """Loops stay loops, and library calls calls."""
    if outcome.name in LOOPS:
        assert outcome.loops or outcome.status == "nothing to do"
        if outcome.name not in PARTLY:
            assert not outcome.library and not outcome.refused, outcome
    elif outcome.name in LIBRARY:
        assert outcome.library


def test_every_name_is_in_the_database() -> None:
    names = {*LOOPS, *PARTLY, *LIBRARY, *OTHERS}
    assert names == {info.name for info in INFOS.values() if info.name in names}


def test_the_first_stage_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(sample: Sample) -> None:
        raise AssertionError("as if")

    later = dict.fromkeys(("reference", "machine code"), differs)
    monkeypatch.setattr("tests.operators.walk.STAGES", {**STAGES, **later})
    outcome = walk(INFOS["sin"], torch.float32, BUDGET)
    assert outcome.failures[0] == "sample 0, reference: AssertionError: as if"
    assert outcome.status == "fails"


def test_a_walk_goes_on_where_it_was_stopped(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "walked.jsonl"
    arguments = ["sin", "--samples", "1", "--stages", "fakes", "--resume", str(file)]
    main(arguments)
    assert capsys.readouterr().out.startswith("NOTHING TO DO sin float32")
    main([*arguments, "--dtypes", "float32,int64"])
    assert capsys.readouterr().out.startswith("NOTHING TO DO sin int64")
    assert [json.loads(line)["dtype"] for line in file.read_text().splitlines()] == [
        "float32",
        "int64",
    ]


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "right": lambda y: y * 1,
    "wrong": lambda y: y * 1.1,
    "absent": lambda y: y.detach(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CHANGES)
def test_wrong_gradients_fail(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another function do, in single precision as in half, and absent ones."""
    compile_graph = walking.compile_graph
    monkeypatch.setattr(
        walking,
        "compile_graph",
        lambda *arguments: WithResult(compile_graph(*arguments), CHANGES[name]),
    )
    outcome = walk(INFOS["sin"], dtype, {"gradients": 2})
    assert bool(outcome.failures) == (name != "right"), outcome
    assert outcome.launches or name != "right"


class WithResult:
    """A compiled graph whose results are changed."""

    def __init__(self, compiled: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.compiled, self.change, self.record = compiled, change, compiled.record

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return [self.change(result) for result in leaves(self.compiled(*inputs))]


def test_other_places_of_equals_are_right_where_eager_promises_none() -> None:
    """As on a GPU. A place twice, another element's, or a stable sort's is not."""
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    values = torch.tensor([[3.0, 3.0]])

    def accepts(places: list[int], **keywords: bool) -> bool:
        found = values, torch.tensor([places])
        wanted = values, torch.tensor([[0, 2]])
        try:
            return picks_other_equals(found, wanted, torch.topk, (x, 2), keywords)
        except AssertionError:
            return False

    assert accepts([2, 0])
    assert not accepts([0, 0])
    assert not accepts([0, 3])
    assert not accepts([2, 0], stable=True)


def test_gradients_of_equals_are_right_together() -> None:
    """As on a GPU, which may have chosen another one. A gradient at an element that is not equal to
    the chosen one is wrong, and so is one twice.
    """
    x = torch.tensor([[3.0, 3.0, torch.nan], [1.0, 3.0, torch.nan], [3.0, 2.0, 5.0]])
    chosen = torch.tensor([[0.5, 0.0, 0.25], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])

    def accepts(*rows: list[float]) -> bool:
        try:
            assert_equals_share((torch.tensor(rows),), (chosen,), x, 0, torch.float32)
        except AssertionError:
            return False
        return True

    nothing = [0.0, 0.0, 0.0]
    assert accepts([0.5, 0.0, 0.25], nothing, nothing)
    assert accepts(nothing, [0.0, 0.0, 0.25], [0.5, 0.0, 0.0])
    assert not accepts(nothing, [0.5, 0.0, 0.25], nothing)
    assert not accepts([0.5, 0.0, 0.0], nothing, [0.0, 0.0, 0.25])
    assert not accepts([0.5, 0.0, 0.25], nothing, [0.5, 0.0, 0.0])
    assert not accepts([0.0, 0.5, 0.25], nothing, nothing)
