"""Backward in segments, as under `DistributedDataParallel`: gradients go out while others are still
to be computed, and all else is as in eager.

`python -m pytest tests/aot tests/end_to_end --segments` runs all training programs so.
"""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fusewright
from fusewright import torch_compat
from fusewright.aot import segmented_history
from fusewright.aot.buckets import Gradient, full_buckets
from fusewright.errors import FusewrightError
from tests.aot.beside_eager import check, compiled, leaf


@pytest.fixture(autouse=True)
def a_bucket_for_each_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat.distributed, "active_bucket_limits", lambda: (1,))


# -- buckets --------------------------------------------------------------------------------------


def test_the_first_bucket_is_smaller() -> None:
    gradients = [Gradient("f32", 4)] * 9
    assert full_buckets(gradients, (4, 12)) == [0, 3, 6]


def test_the_last_limit_is_that_of_all_further_buckets() -> None:
    assert full_buckets([Gradient("f32", 4)] * 6, (8,)) == [1, 3, 5]


def test_types_have_buckets_and_limits_of_their_own() -> None:
    gradients = [Gradient("f32", 4), Gradient("f16", 2)] * 4
    assert full_buckets(gradients, (4, 8)) == [0, 3, 4]


def test_buckets_are_those_of_the_reducer() -> None:
    """Torch's own function for the initial assignment follows the same rule."""
    sizes = [3, 300, 5, 70, 70, 70, 1, 1000, 2, 2]
    tensors = [torch.empty(size) for size in sizes]
    limits = [256, 1024]
    theirs, _ = torch.distributed._compute_bucket_assignment_by_size(tensors, limits)
    full = full_buckets([Gradient("f32", 4 * size) for size in sizes], limits)
    begins = [0, *(end + 1 for end in full)]
    ours = [list(range(a, b)) for a, b in zip(begins, [*begins[1:], len(sizes)], strict=True)]
    assert [one for one in ours if one] == theirs


# -- when gradients go out ------------------------------------------------------------------------


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = F.linear(x, weight).tanh()
    return x


def weights(count: int) -> list[Tensor]:
    return [leaf(4, 4, seed=seed) for seed in range(1, count + 1)]


def order_of(monkeypatch: pytest.MonkeyPatch, params: list[Tensor]) -> list[str]:
    """Gets what happens in backward, in order: segments that begin, gradients that are there."""
    order: list[str] = []
    for number, param in enumerate(params):
        param.register_post_accumulate_grad_hook(lambda _, n=number: order.append(f"gradient {n}"))
    run = segmented_history._run_segment

    def noted(ctx: Any, *args: Any) -> Any:
        order.append(f"segment {ctx.number}")
        return run(ctx, *args)

    monkeypatch.setattr(segmented_history, "_run_segment", noted)
    return order


def test_a_gradient_is_there_before_the_next_segment_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    params = weights(3)
    order = order_of(monkeypatch, params)
    compiled(layers)(leaf(2, 4).detach(), *params).sum().backward()
    steps = [("segment 0", "gradient 2"), ("segment 1", "gradient 1"), ("segment 2", "gradient 0")]
    assert order == [one for step in steps for one in step]


def test_gradients_taken_from_tuples_are_there_when_the_tuple_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tracing takes them at the end of the graph, which is not when they are computed."""
    params = [leaf(2, 2, 3, seed=seed) for seed in range(3)]
    order = order_of(monkeypatch, params)

    def program(x: Tensor, *kernels: Tensor) -> Tensor:
        for kernel in kernels:
            x = F.conv1d(x, kernel, padding=1).tanh()
        return x

    compiled(program)(leaf(1, 2, 9).detach(), *params).sum().backward()
    steps = [("segment 0", "gradient 2"), ("segment 1", "gradient 1"), ("segment 2", "gradient 0")]
    assert order == [one for step in steps for one in step]


def test_a_module_is_split_for_buckets_of_one_size_and_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params, run = weights(3), compiled(layers)
    order = order_of(monkeypatch, params)
    for limits, count in (((128,), 3), ((256,), 2), ((128, 256), 2), ((128,), 3)):
        monkeypatch.setattr(torch_compat.distributed, "active_bucket_limits", lambda x=limits: x)
        order.clear()
        run(leaf(2, 4).detach(), *params).sum().backward()
        assert sum(one.startswith("segment") for one in order) == count


def test_a_shared_weight_has_its_gradient_when_all_of_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = weights(2)
    order = order_of(monkeypatch, params)
    tied = compiled(lambda x, first, second: layers(x, first, second, first))
    tied(leaf(2, 4).detach(), *params).sum().backward()
    assert order == ["segment 0", "gradient 1", "segment 1", "gradient 0"]


def test_gradients_of_some_weights_run_no_further_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    params = weights(3)
    order = order_of(monkeypatch, params)
    loss = compiled(layers)(leaf(2, 4).detach(), *params).sum()
    torch.autograd.grad(loss, [params[2]])
    assert order == ["segment 0"]


def test_nothing_is_split_for_one_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat.distributed, "active_bucket_limits", lambda: (10**9,))
    params = weights(3)
    order = order_of(monkeypatch, params)
    compiled(layers)(leaf(2, 4).detach(), *params).sum().backward()
    assert not any(one.startswith("segment") for one in order) and len(order) == 3


# -- all else is as in eager ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        layers,
        lambda x, *w: (layers(x, *w), layers(x, w[0]).sum(), w[1].exp()),
        lambda x, *w: F.layer_norm(layers(x, *w) + x, (4,), w[0][0], w[0][1]),
        lambda x, *w: layers(x, *w).t() + x.t(),
        lambda x, *w: layers(x, w[0], w[1], w[0], w[2]) * w[2].sum(),
        lambda x, *w: (w[0].view(2, 8), x.split(2, 1)[0] * w[1][0, :2], w[2] + 0),
        lambda x, *w: F.dropout(layers(x, *w), 0.5),
    ],
)
def test_results_and_gradients(program: Any) -> None:
    check(program, lambda: [leaf(2, 4), *weights(3)])


def test_results_of_which_some_go_nowhere() -> None:
    def program(x: Tensor, *w: Tensor) -> tuple[Tensor, ...]:
        hidden = layers(x, w[0])
        return layers(hidden, w[1]), layers(hidden, w[2]), hidden

    ours = compiled(program)
    for used in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
        found = []
        for run in (ours, program):
            params = weights(3)
            results = run(leaf(2, 4).detach(), *params)
            sum(results[one].square().sum() for one in used).backward()  # type: ignore[union-attr]
            found.append([param.grad for param in params])
        for ours_grad, eager_grad in zip(*found, strict=True):
            assert (ours_grad is None) == (eager_grad is None)
            if eager_grad is not None:
                torch.testing.assert_close(ours_grad, eager_grad)


def test_a_second_backward_needs_the_graph_to_be_retained() -> None:
    params = weights(3)
    loss = compiled(layers)(leaf(2, 4).detach(), *params).sum()
    loss.backward(retain_graph=True)
    once = [param.grad.clone() for param in params]  # type: ignore[union-attr]
    loss.backward()
    torch.testing.assert_close([param.grad for param in params], [2 * one for one in once])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_second_derivative_is_an_error_that_says_why() -> None:
    params = weights(3)
    loss = compiled(layers)(leaf(2, 4).detach(), *params).sum()
    gradients = torch.autograd.grad(loss, params, create_graph=True)
    for gradient in gradients:
        with pytest.raises(FusewrightError, match="second derivatives"):
            gradient.sum().backward(retain_graph=True)


def test_what_a_segment_kept_is_freed_when_it_has_run() -> None:
    """The first layers' backward runs with the last layers' activations gone, as in eager."""
    kept: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def pack(tensor: Tensor) -> Any:
        box = [tensor]
        holder = Box(box)
        kept.append(weakref.ref(holder))
        return holder

    params = weights(3)
    for param in params:
        param.register_hook(lambda _: alive.append(sum(one() is not None for one in kept)))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda holder: holder.box[0]):
        loss = compiled(layers)(leaf(2, 4).detach(), *params).sum()
    loss.backward()
    assert alive == sorted(alive, reverse=True) and alive[0] > alive[-1]


class Box:
    def __init__(self, box: list[Tensor]) -> None:
        self.box = box


def test_no_cycle_keeps_the_results() -> None:
    gc.collect()
    params = weights(3)
    gone = []
    run = compiled(lambda x, *w: (layers(x, *w).exp(), layers(x, *w[:2]).exp()))
    gc.disable()
    try:
        results = run(leaf(2, 4), *params)
        gone = [weakref.ref(result) for result in results]
        del results
        assert all(ref() is None for ref in gone)
    finally:
        gc.enable()


def test_a_checkpoint_computes_again_with_the_same_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in backward, when no module of `DistributedDataParallel` is active."""
    params, run = weights(3), compiled(layers)
    loss = checkpoint(run, leaf(2, 4).detach(), *params, use_reentrant=False).sum()
    monkeypatch.setattr(torch_compat.distributed, "active_bucket_limits", lambda: None)
    loss.backward()
    wanted = torch.autograd.grad(layers(leaf(2, 4).detach(), *params).sum(), params)
    torch.testing.assert_close([param.grad for param in params], list(wanted))


def test_a_write_to_what_was_saved_is_refused() -> None:
    params = weights(3)
    loss = compiled(layers)(leaf(2, 4).detach(), *params).sum()
    with torch.no_grad():
        params[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_sizes_that_a_segment_takes_no_tensor_of() -> None:
    """The weights' gradients are computed from tensors of other sizes than the batch's own."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(2), nn.Linear(36, 4), nn.GELU()
    )
    reference = copy.deepcopy(model)
    options = {"strict": True, "verify": True}
    ours = fusewright.compile(model, dynamic=True, options=options)
    for size in (4, 7, 2):
        for compute in (ours, reference):
            compute(torch.ones(size, 3, 8, 8).cumsum(0).cos()).cos().mean().backward()
        for param, wanted in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(param.grad, wanted.grad)
    assert len(fusewright.compilations(ours)) == 1


def test_anomaly_detection_finds_nothing() -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        compiled(layers)(leaf(2, 4).detach(), *weights(3)).sum().backward()
