"""Groups that are cut into kernels of chunks compute what they did whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import fusewright
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.reference_groups import evaluate_group
from fusewright.kernels.split_groups import SplitGroup, split_group, why_not_split

Tensor = torch.Tensor


def groups_of(function: Callable[..., Any], *inputs: Any) -> list[Group]:
    compiled = fusewright.compile(function, options={"strict": True})
    compiled(*inputs)
    (compilation,) = fusewright.api.compilations(compiled)
    works = compilation.compiled.record.schedule.works
    return [
        canonical_group(work, canonical_names(work)) for work in works if isinstance(work, Group)
    ]


def memory(group: Group) -> dict[str, Tensor]:
    """Random memory for the buffers of a group, of which each has at most 4,096 elements."""
    buffers = {buffer.name: buffer for buffer in (*group.reads, *group.writes)}
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(4096, generator=generator).to(
            getattr(torch, buffer.layout.dtype.torch_name)
        )
        for name, buffer in buffers.items()
    }


def run_parts(split: SplitGroup, tensors: dict[str, Tensor]) -> None:
    tensors = dict(tensors)
    for buffer in split.temporaries:
        size = [int(extent) for extent in buffer.layout.size]
        dtype = getattr(torch, buffer.layout.dtype.torch_name)
        tensors[buffer.name] = torch.full(size, 77, dtype=dtype)
    for part in split.parts:
        names = {buffer.name for buffer in (*part.reads, *part.writes)}
        evaluate_group(part, {name: tensors[name].flatten() for name in names}, {})


PROGRAMS: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(-1),
    "epilogue": lambda x: torch.relu(x.sum(-1) * 2 + 1),
    "prologue": lambda x: (x * 2 + 1).exp().amax(-1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x * 2, -1),
    "columns": lambda x: x.sum(0),
    "column_softmax": lambda x: torch.softmax(x, 0),
    "several": lambda x: (x.sum(-1), x.amax(-1), (x * x).sum(-1)),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "integers": lambda x: (x > 0).sum(-1),
    "booleans": lambda x: (x > 1).any(-1),
    "all_of_it": lambda x: x.sum(),
    "centred": lambda x: x * 2 - (x * 2).mean(-1, keepdim=True),
}


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_compute_the_whole(name: str, count: int) -> None:
    groups = [g for g in groups_of(PROGRAMS[name], torch.randn(6, 48)) if why_not_split(g) is None]
    assert groups or name == "layer_norm"  # which is Welford's
    for group in groups:
        split = split_group(group, count)
        assert split is not None and len(split.parts) >= 2
        tensors = memory(group)
        expected = {name: tensor.clone() for name, tensor in tensors.items()}
        evaluate_group(group, expected, {})
        run_parts(split, tensors)
        for buffer in group.writes:
            torch.testing.assert_close(tensors[buffer.name], expected[buffer.name])


def test_chunks_that_run_over_the_end() -> None:
    """Reductions are cut anyhow, stores only evenly."""
    (group,) = groups_of(lambda x: (x + 1).prod(-1), torch.randn(6, 47))
    split = split_group(group, 4)
    assert split is not None
    tensors = memory(group)
    expected = {name: tensor.clone() for name, tensor in tensors.items()}
    evaluate_group(group, expected, {})
    run_parts(split, tensors)
    torch.testing.assert_close(tensors["out0"], expected["out0"])
    (softmax,) = groups_of(lambda x: torch.softmax(x, -1), torch.randn(6, 47))
    assert split_group(softmax, 4) is None


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.argmax(-1), "argmax is not put together of parts"),
        (lambda x: x * 2, "no stage has loops of its own"),
        (lambda x: x[x.long().clamp(0, 5)].sum(-1), "it may raise"),
    ],
)
def test_what_is_not_cut(function: Callable[..., Any], reason: str) -> None:
    assert reason in [why_not_split(group) for group in groups_of(function, torch.randn(6, 48))]
