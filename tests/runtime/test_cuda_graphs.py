"""When calls are recorded and replayed, and what memory they read and write, on a device that
"records" a call by keeping it, and "replays" it into the memory of the first results.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import generation, pipeline
from fusewright.kept_plans import FOUND
from fusewright.runtime import cuda_graphs
from fusewright.runtime.cuda_graphs import (
    PATIENCE,
    RECORDING_LIMIT,
    Recording,
    RecordingPool,
    Replayer,
    ReplayFacts,
)
from fusewright.runtime.static_memory import ALIGNMENT, TensorSpan
from tests.gpu import test_cuda_graphs as loops


def at_the_same_address(value: Any) -> Any:
    """A tensor that shares the memory of another and does not keep it alive."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    span = TensorSpan.of(value)
    memory = (ctypes.c_byte * (span.length * value.element_size())).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=value.dtype).as_strided(span.size, span.stride)


class KeptCall:
    """Computes the call again from the same memory, into the memory of its results."""

    def __init__(self, call: Callable[..., Any], inputs: list[Any], outputs: Sequence[Any]) -> None:
        places = {id(value): place for place, value in enumerate(inputs) if value is not None}
        self.call, self.outputs = call, [at_the_same_address(output) for output in outputs]
        self.inputs = [at_the_same_address(value) for value in inputs]
        for place, output in enumerate(outputs):
            if id(output) in places:
                self.outputs[place] = self.inputs[places[id(output)]]

    def replay(self) -> None:
        for output, value in zip(self.outputs, self.call(list(self.inputs)), strict=True):
            if isinstance(output, torch.Tensor) and output is not value:
                output.copy_(value)
                if not output.numel():  # what stands for memory
                    output.untyped_storage().copy_(value.untyped_storage())


class PretendedDevice:
    def __init__(self) -> None:
        self.warm_ups = self.recordings = 0
        self.fails = False
        self.waited_for: list[Any] = []

    def warm_up(self, call: Callable[..., Any], inputs: list[Any]) -> Sequence[Any]:
        self.warm_ups += 1
        return call(inputs)  # type: ignore[no-any-return]

    def record(
        self, call: Callable[..., Any], inputs: list[Any]
    ) -> tuple[Recording, Sequence[Any]]:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore words")
        self.recordings += 1
        memory = [TensorSpan.of(one).whole(one) for one in inputs if isinstance(one, torch.Tensor)]
        before = [whole.clone() for whole in memory]
        outputs = call(list(inputs))
        for whole, old in zip(memory, before, strict=True):  # a real recording runs nothing
            whole.data.copy_(old)  # which no version counts
        return KeptCall(call, list(inputs), outputs), outputs

    def wait_for(self, streams: Sequence[Any]) -> None:
        self.waited_for += streams


class World:
    """A pool on a pretended device, and how often a function really ran outside of replays."""

    def __init__(self) -> None:
        self.device = PretendedDevice()
        self.pool: RecordingPool | None = RecordingPool(self.device)

    def replayer(self, call: Callable[..., Any], **facts: Any) -> Replayer:
        def run(inputs: list[Any]) -> Sequence[Any]:
            given = list(inputs)
            inputs.clear()
            return call(*given)  # type: ignore[no-any-return]

        return Replayer(run, ReplayFacts(**facts), lambda: self.pool)


@pytest.fixture
def world() -> World:
    return World()


def product(weight: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
    return (weight * x,)


def test_the_second_call_is_recorded_and_later_ones_replay(world: World) -> None:
    call, weight = world.replayer(product), torch.randn(3)
    kept = []
    for _ in range(5):
        x = torch.randn(3)
        (result,) = call([weight, x])
        torch.testing.assert_close(result, weight * x)
        kept.append((result, weight * x, x))
    assert (world.device.warm_ups, world.device.recordings, call.replays) == (1, 1, 4)
    for result, expected, _ in kept:  # later replays left earlier results alone
        torch.testing.assert_close(result, expected)


def test_a_parameter_is_read_where_it_is(world: World) -> None:
    call, weight, x = world.replayer(product), torch.ones(3), torch.ones(3)
    for step in range(4):
        weight.fill_(step)
        torch.testing.assert_close(call([weight, x])[0], torch.full((3,), float(step)))
    assert call.replays == 3


def test_an_input_that_begins_to_move_is_copied_from_then_on(world: World) -> None:
    call, weight, fixed = world.replayer(product), torch.randn(3), torch.randn(3)
    for _ in range(3):
        call([weight, fixed])
    others = [torch.randn(3) for _ in range(PATIENCE + 3)]
    for x in others:
        torch.testing.assert_close(call([weight, x])[0], weight * x)
    assert world.device.recordings == 2
    assert call.replays == 2 + 4


def test_one_call_elsewhere_runs_as_it_is(world: World) -> None:
    call, weight, fixed = world.replayer(product), torch.randn(3), torch.randn(3)
    for x in (fixed, fixed, torch.randn(3), fixed):
        torch.testing.assert_close(call([weight, x])[0], weight * x)
    assert (world.device.recordings, call.replays) == (1, 2)


def test_a_graph_whose_inputs_move_without_end_is_given_up(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    call = world.replayer(lambda *inputs: (sum(inputs),))
    inputs = [torch.randn(2) for _ in range(2 * RECORDING_LIMIT + 4)]
    kept = []
    for place in range(len(inputs)):
        for _ in range(PATIENCE + 1):
            kept.append(inputs[place])
            inputs[place] = torch.randn(2)
            torch.testing.assert_close(call(list(inputs))[0], sum(inputs))
    assert "it was recorded" in call.why_not


def test_writes_to_inputs_reach_them(world: World) -> None:
    def step(total: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total.add_(x)
        return total, total * 2

    fixed = torch.zeros(3)
    call = world.replayer(step, written=frozenset({0}))
    for count in range(1, 5):
        total, doubled = call([fixed, torch.ones(3)])
        assert total is fixed
        torch.testing.assert_close(doubled, torch.full((3,), 2.0 * count))
    torch.testing.assert_close(fixed, torch.full((3,), 4.0))

    call = world.replayer(step, written=frozenset({0}))
    kept = []
    for _ in range(4):
        moving = torch.zeros(3)
        total, doubled = call([moving, torch.ones(3)])
        assert total is moving
        torch.testing.assert_close(moving, torch.ones(3))
        kept.append((moving, doubled))
    assert call.replays == 3


def saving(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A result, and what is kept for backward."""
    return (x * weight).sum(), x * 3


def saving_all_of_a_result(
    x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A part of what is kept for backward, and that."""
    kept = x * weight
    return kept[1:], kept


def test_what_backward_needs_is_not_overwritten_while_it_is_held(world: World) -> None:
    call, weight = world.replayer(saving, kept_from=1), torch.randn(3)
    steps = []
    for _ in range(4):  # gradient accumulation with backward at the end
        x = torch.randn(3)
        steps.append((x, call([x, weight])))
    for x, (_, kept) in steps:
        torch.testing.assert_close(kept, x * 3)
    assert call.replays == 1
    steps.clear()
    for _ in range(3):
        x = torch.randn(3)
        _, kept = call([x, weight])
        torch.testing.assert_close(kept, x * 3)
        view = kept[1:]
        del kept
        torch.testing.assert_close(view, 3 * x[1:])
        del view
    assert call.replays == 4


def test_kept_views_of_inputs(world: World) -> None:
    """One in place is not the recording's; one that moves is overwritten by the next call's."""
    weight = torch.randn(3)
    call = world.replayer(lambda x, weight: (x * weight, weight[1:], x[1:]), kept_from=1)
    others = []
    for _ in range(4):
        x = torch.randn(3)
        others.append(weight[:2])  # more and more hold its memory
        *_, kept = call([x, weight])
        torch.testing.assert_close(kept, x[1:])
        del kept
    assert call.replays == 3
    x = torch.randn(3)
    _, _, kept = call([x, weight])
    call([torch.randn(3), weight])
    torch.testing.assert_close(kept, x[1:])
    assert call.replays == 4


def test_an_earlier_recording_does_not_run_over_what_a_later_one_handed_out(world: World) -> None:
    first, second = world.replayer(product), world.replayer(saving, kept_from=1)
    weight = torch.randn(3)
    for _ in range(2):
        first([weight, torch.randn(3)])
    for _ in range(2):
        kept = second([torch.randn(3), weight])[1]
    first([weight, torch.randn(3)])
    assert first.replays == 1
    del kept
    first([weight, torch.randn(3)])
    assert first.replays == 2
    second([torch.randn(3), weight])
    assert second.replays == 2


@pytest.mark.parametrize("function", [saving, saving_all_of_a_result])
def test_what_a_dropped_recording_handed_out_still_counts(
    world: World, function: Callable[..., Any]
) -> None:
    first, second = world.replayer(product), world.replayer(function, kept_from=1)
    weight = torch.randn(3)
    for _ in range(2):
        first([weight, torch.randn(3)])
    for _ in range(2):
        kept = second([torch.randn(3), weight])[1]
    del second
    first([weight, torch.randn(3)])
    assert first.replays == 1
    del kept
    first([weight, torch.randn(3)])
    assert first.replays == 2


def test_each_size_has_a_recording_up_to_a_limit(world: World) -> None:
    call = world.replayer(lambda x: (x * 2,), sizes_vary=True)
    for _ in range(3):
        for size in range(RECORDING_LIMIT + 2):
            x = torch.randn(size)
            torch.testing.assert_close(call([x])[0], x * 2)
    assert world.device.recordings == RECORDING_LIMIT
    assert call.replays == 2 * RECORDING_LIMIT


@pytest.mark.parametrize("view", [lambda x: x[1:], lambda x: x[1::2], lambda x: x[:0]])
def test_static_memory_is_aligned_as_the_input_was(
    world: World, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """A recording launches what ran before: kernels for other alignments may not be loaded yet."""
    seen: list[int] = []

    def doubled(weight: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        seen.append(x.data_ptr() % ALIGNMENT)
        return (x * 2 * weight,)

    call, weight = world.replayer(doubled), torch.ones(1)
    inputs = [view(torch.randn(20)) for _ in range(4 + PATIENCE)]
    for step, x in enumerate(inputs):
        if step == 3:  # It moves, too, and all is recorded anew.
            weight = torch.ones(1)
        torch.testing.assert_close(call([weight, x])[0], x * 2)
    assert (world.device.recordings, call.replays) == (2, len(inputs) - 2)
    assert set(seen) == {inputs[0].data_ptr() % ALIGNMENT}


def test_each_thread_warms_up_before_it_records(world: World) -> None:
    """What libraries make for a thread at its first call may not be made while it records."""
    call, x = world.replayer(lambda x: (x * 2,)), torch.randn(3)

    def twice() -> None:
        for _ in range(2):
            torch.testing.assert_close(call([x])[0], x * 2)

    call([x])
    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()
    assert (world.device.warm_ups, world.device.recordings, call.replays) == (2, 1, 1)


def test_what_many_threads_call_once_is_recorded(world: World) -> None:
    call, x = world.replayer(lambda x: (x * 2,)), torch.randn(3)
    all_called = threading.Barrier(RECORDING_LIMIT + 3)

    def once() -> None:
        torch.testing.assert_close(call([x])[0], x * 2)
        all_called.wait(10)  # A new thread may have the number of one that has ended.

    with ThreadPoolExecutor(all_called.parties) as threads:
        for done in [threads.submit(once) for _ in range(all_called.parties)]:
            done.result()
    assert (world.device.warm_ups, call.replays) == (RECORDING_LIMIT, 3)


def test_what_cannot_be_recorded_is_warned_of_once_and_runs(
    world: World, recwarn: pytest.WarningsRecorder
) -> None:
    world.device.fails = True
    call, weight = world.replayer(product), torch.randn(3)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(call([weight, x])[0], weight * x)
    assert call.why_not == "RuntimeError: operation not permitted when stream is capturing"


def test_without_memory_for_static_inputs_calls_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate 20 GiB")

    monkeypatch.setattr(cuda_graphs, "StaticInputs", no_memory)
    call, x = world.replayer(product), torch.randn(3)
    call([x, x])
    with pytest.warns(RuntimeWarning, match="no longer replayed .* tried to allocate 20 GiB"):
        torch.testing.assert_close(call([x, x])[0], x * x)
    torch.testing.assert_close(call([x, x])[0], x * x)
    assert call.replays == 0


def test_nothing_is_recorded_while_the_program_records(world: World) -> None:
    world.pool = None
    call, x = world.replayer(product), torch.randn(3)
    for _ in range(3):
        call([x, x])
    assert (world.device.warm_ups, call.replays) == (0, 0)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(5, 4),
    "with gaps": lambda x: x[::2, 1:],
    "empty": lambda x: x[:0],
    "a number": lambda x: x[0, 0],
    "of size 1 with a step": lambda x: x[:1, :1],
    "overlapping": lambda x: x.as_strided((4, 4), (2, 1)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_inputs_and_results_of_every_layout(world: World, name: str) -> None:
    view = LAYOUTS[name]
    call = world.replayer(lambda x: (view(torch.ones(6, 4)) * 2 + x.sum(), x[...].clone()))
    for _ in range(4):
        x = view(torch.randn(6, 4))
        assert TensorSpan.of(x).like(x).stride() == x.stride()
        results = call([x])
        expected = (view(torch.ones(6, 4)) * 2 + x.sum(), x.clone())
        for result, other in zip(results, expected, strict=True):
            torch.testing.assert_close(result, other)
            assert result.stride() == other.stride()


def test_what_holds_memory_without_elements_is_handed_out_as_it_lies(world: World) -> None:
    def call_with_workspace(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, (x * 3)[:0]

    call = world.replayer(call_with_workspace)
    for _ in range(3):
        x = torch.randn(4)
        holder = call([x])[1]
        memory = torch.empty(0).set_(holder.untyped_storage(), 0, (4,), (1,))
        torch.testing.assert_close(memory, x * 3)
        del holder, memory
    assert call.replays == 2


def test_inference_mode_and_gradients(world: World) -> None:
    call, weight = world.replayer(product), torch.randn(3, requires_grad=True)
    for context in (torch.inference_mode, torch.no_grad, partial(torch.inference_mode, False)) * 3:
        with context():
            x = torch.randn(3)
            (result,) = call([weight, x])
            torch.testing.assert_close(result, (weight * x).detach())
            assert not result.requires_grad


def test_a_graph_on_the_cpu_says_why_it_is_not_replayed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = fusewright.compile(f, mode="reduce-overhead", options={"strict": True})
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    text = str(fusewright.explain(compiled).history)
    assert "(no CUDA graph: its tensors are on cpu)" in text


def test_backend_cudagraphs_leaves_a_graph_on_the_cpu_as_it_is() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    compiled = fusewright.compile(module, backend="cudagraphs")
    x = torch.randn(3, 4)
    for _ in range(3):
        module.zero_grad()
        module(x).sum().backward()
        expected = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close([p.grad for p in module.parameters()], expected)


@pytest.mark.parametrize(
    "loop",
    [
        loops.plain,
        loops.accumulating,
        loops.backward_at_the_end,
        loops.retained,
        loops.short_last_batch,
    ],
)
def test_training(loop: Callable[..., Any], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops that are tested on a GPU."""
    monkeypatch.setattr(loops, "CUDA", torch.device("cpu"))
    monkeypatch.setattr(generation, "why_not_recorded", lambda schedule: "")
    monkeypatch.setattr(pipeline, "current_pool", lambda device: world.pool)
    loops.test_training(loop)


def test_a_kept_plan_is_replayed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FUSEWRIGHT_GRAPH_CACHE")
    monkeypatch.setattr(generation, "why_not_recorded", lambda schedule: "")
    monkeypatch.setattr(pipeline, "current_pool", lambda device: world.pool)

    def doubled(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return weight * x

    def results(function: Callable[..., Any]) -> list[torch.Tensor]:
        found = []
        x, slope = torch.empty(3), torch.ones(3)  # A call with memory that moved is recorded anew.
        for weight in (torch.ones(3), torch.ones(3, requires_grad=True)):
            for step in range(10):
                result = function(weight, x.fill_(step))
                if weight.requires_grad:
                    result.backward(slope)
                    found.append(weight.grad.clone())  # type: ignore[union-attr]
                found += [x.clone(), result.detach()]
        return found

    for expected in ("new: ", FOUND):
        compiled = fusewright.compile(doubled, mode="reduce-overhead", options={"strict": True})
        torch.testing.assert_close(results(compiled), results(doubled))
        halves = [half for one in fusewright.compilations(compiled) for half in one.halves]
        assert [half.record.kept.startswith(expected) for half in halves] == [True] * 3
        replayers = [half.replayer for half in halves]
        assert [one.replays for one in replayers if one is not None] == [9, 9, 8]


def test_a_kept_plan_says_why_it_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FUSEWRIGHT_GRAPH_CACHE")
    for expected in ("new: ", FOUND):
        compiled = fusewright.compile(torch.sin, mode="reduce-overhead")
        compiled(torch.ones(3))
        ((half,),) = [one.halves for one in fusewright.compilations(compiled)]
        assert half.record.kept.startswith(expected)
        assert half.record.unrecorded_because == "its tensors are on cpu"
        assert half.replayer is None


@pytest.mark.parametrize("options", [{"check_nan": True}, {"debug_printer": "kernel_names"}])
def test_what_is_watched_is_not_recorded(
    world: World, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for a kernel breaks a recording."""
    monkeypatch.setattr(generation, "why_not_recorded", lambda schedule: "")
    monkeypatch.setattr(pipeline, "current_pool", lambda device: world.pool)
    compiled = fusewright.compile(torch.sin, options={"cuda_graphs": True, **options})
    compiled(torch.ones(3))
    ((half,),) = [one.halves for one in fusewright.compilations(compiled)]
    assert half.record.unrecorded_because.endswith("waits for each kernel")
    assert half.replayer is None
