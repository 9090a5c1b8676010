"""Results of replays are handed out as they lie, and stay what they are: whoever holds one, a part
of one, or its storage, keeps replays off its memory.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import fusewright
from fusewright import generation, pipeline, torch_compat
from fusewright.runtime.cuda_graphs import TURNS, Recording, Replayer, ReplayFacts
from tests.runtime.test_cuda_graphs import World
from tests.threads import in_threads

WEIGHT = torch.randn(5, 3)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A pretended device, to which graphs on the CPU go."""
    world = World()
    monkeypatch.setattr(generation, "why_not_recorded", lambda schedule: "")
    monkeypatch.setattr(pipeline, "current_pool", lambda device: world.pool)
    return world


def replayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled and called as often as it takes to be recorded."""
    compiled = fusewright.compile(function, mode="reduce-overhead", options={"strict": True})
    for _ in range(2):
        compiled(torch.randn(3))
    assert replayer_of(compiled).replays == 1
    return compiled


def replayer_of(compiled: Callable[..., Any]) -> Replayer:
    ((half,),) = [one.halves for one in fusewright.compilations(compiled)]
    assert half.replayer is not None and half.replayer.why_not == ""
    return half.replayer


def scaled(x: torch.Tensor) -> torch.Tensor:
    return WEIGHT * x


def test_a_result_that_is_dropped_leaves_its_memory_to_the_next(world: World) -> None:
    call = replayed(scaled)
    addresses = set()
    for _ in range(4):
        x = torch.randn(3)
        result = call(x)
        torch.testing.assert_close(result, scaled(x))
        addresses.add(result.data_ptr())
        del result
    assert (world.device.recordings, len(addresses)) == (1, 1)


def test_two_recordings_take_turns_where_the_last_result_is_held(world: World) -> None:
    call = replayed(scaled)
    places = []
    for _ in range(6):
        x = torch.randn(3)
        result = call(x)
        torch.testing.assert_close(result, scaled(x))
        places.append(result.data_ptr())
    assert world.device.recordings == TURNS == len(set(places))
    assert places[:2] * 3 == places
    assert replayer_of(call).replays == 7


def test_results_of_ten_calls_that_are_kept(world: World) -> None:
    call = replayed(scaled)
    kept = []
    for _ in range(10):
        x = torch.randn(3)
        kept.append((call(x), scaled(x)))
    for result, expected in kept:
        torch.testing.assert_close(result, expected)
    assert len({result.data_ptr() for result, _ in kept}) == 10
    assert world.device.recordings == TURNS + 1  # the last of which copies
    assert replayer_of(call).replays == 11
    del kept, result
    (x, y) = torch.randn(2, 3)
    first, second = call(x), call(y)
    torch.testing.assert_close((first, second), (scaled(x), scaled(y)))
    assert world.device.recordings == TURNS + 1


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], torch.Tensor]]] = {
    "a view": (lambda result: result[1:, ::2], lambda held: held),
    "a detached one": (lambda result: result.detach(), lambda held: held),
    "its storage": (
        lambda result: result.untyped_storage(),
        lambda held: torch.empty(0).set_(held, 0, (5, 3), (3, 1)),
    ),
    "a memory view": (lambda result: result.numpy(), torch.from_numpy),
    "what autograd saved": (
        lambda result: torch.ones(5, 3, requires_grad=True).mul(result),
        lambda held: torch.autograd.grad(held.sum(), held.grad_fn.next_functions[0][0].variable)[0],
    ),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_a_result(world: World, name: str) -> None:
    hold, numbers_of = HOLDERS[name]
    call = replayed(scaled)
    x = torch.randn(3)
    held, expected = hold(call(x)), numbers_of(hold(scaled(x)))
    for _ in range(3):
        other = torch.randn(3)
        torch.testing.assert_close(call(other), scaled(other))
    torch.testing.assert_close(numbers_of(held), expected)
    assert world.device.recordings == 2


def test_results_that_are_changed_in_place(world: World) -> None:
    call = replayed(scaled)
    x, y = torch.randn(2, 3)
    result = call(x)
    result.fill_(7)
    torch.testing.assert_close(call(y), scaled(y))
    torch.testing.assert_close(result, torch.full((5, 3), 7.0))
    del result
    torch.testing.assert_close(call(y), scaled(y))


@pytest.mark.parametrize("size", [0, 4000])
def test_a_result_whose_storage_is_given_other_memory(world: World, size: int) -> None:
    call = replayed(scaled)
    for step in range(3):
        x = torch.randn(3)
        result = call(x)
        torch.testing.assert_close(result, scaled(x))
        result.untyped_storage().resize_(size)
        others = [torch.full((5, 3), float(step)) for _ in range(20)]  # in what is free now
        if step == 1:
            del result
        torch.testing.assert_close(call(x), scaled(x))
        torch.testing.assert_close(others, [torch.full((5, 3), float(step))] * 20)
    assert replayer_of(call).replays == 7
    assert world.device.recordings == 1 + 3  # one for each that lost its memory


def test_results_that_share_memory_share_it(world: World) -> None:
    def f(x: torch.Tensor) -> Any:
        scaled = WEIGHT * x
        return scaled, scaled, scaled[1:], x, x[1:]

    call, kept = replayed(f), []
    for _ in range(5):
        x = torch.randn(3)
        results = call(x)
        first, second, part, given, part_of_given = results
        assert second is first and part.untyped_storage() is first.untyped_storage()
        assert given is x and part_of_given.untyped_storage() is x.untyped_storage()
        kept.append((results, f(x)))
    for results, expected in kept:
        torch.testing.assert_close(results, expected)


def test_one_of_several_results_that_is_kept(world: World) -> None:
    call = replayed(lambda x: (WEIGHT * x, x.exp().sum(), WEIGHT @ x))
    kept = []
    for step in range(6):
        x = torch.randn(3)
        expected = WEIGHT * x, x.exp().sum(), WEIGHT @ x
        kept.append((call(x)[step % 3], expected[step % 3]))
    for result, expected in kept:
        torch.testing.assert_close(result, expected)


def test_a_stream_that_was_said_to_use_a_result_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_compat.cuda, "_record_stream", lambda tensor, stream: None)
    call, x = replayed(scaled), torch.randn(3)
    result = call(x)
    for stream in ("copies", "sends", "copies"):
        result[1:].record_stream(stream)
    call(x)  # elsewhere, as the result is still there
    assert world.device.waited_for == []
    del result
    call(x)
    assert world.device.waited_for == ["copies", "sends"]
    call(x)
    torch.ones(3).record_stream("others")
    call(x)
    assert world.device.waited_for == ["copies", "sends"]


def test_results_outlive_the_recording(world: World) -> None:
    call, x = replayed(scaled), torch.randn(3)
    result = call(x)
    del call
    fusewright.reset()
    gc.collect()
    assert not torch.equal(torch.full((5, 3), 9.0), result)
    torch.testing.assert_close(result, scaled(x))


def test_the_memory_of_a_recording_that_is_dropped_is_free(world: World) -> None:
    record = world.device.record  # whose recordings hold what they write, as no driver does

    def record_loosely(*arguments: Any) -> Any:
        return Ahead(None, list), record(*arguments)[1]

    world.device.record = record_loosely  # type: ignore[method-assign]
    plan = Scaled()
    call = Replayer(plan, ReplayFacts(), lambda: world.pool)
    for _ in range(3):
        call([torch.randn(3)])
    storage = plan.storages[-1]
    assert storage() is not None and call.replays == 2
    del call
    gc.collect()
    assert storage() is None


def test_a_loop_over_two_graphs_replays_both(world: World) -> None:
    first, second = replayed(scaled), replayed(lambda x: x - WEIGHT)
    for _ in range(4):
        x = torch.randn(3)
        one = first(x)
        two = second(x)
        torch.testing.assert_close((one, two), (scaled(x), x - WEIGHT))
    assert [replayer_of(call).replays for call in (first, second)] == [5, 5]


def test_threads_have_results_of_their_own(world: World) -> None:
    call = replayed(scaled)

    def run(_: int) -> None:
        for _ in range(60):
            x = torch.randn(3)
            results = [call(x) for _ in range(3)]
            for result in results:
                torch.testing.assert_close(result, scaled(x))

    in_threads(run, 3)


class Scaled:
    """`scaled`, as a plan: it writes its result where it is told to."""

    def __init__(self) -> None:
        self.storages = list[Any]()

    def __call__(self, inputs: list[Any]) -> tuple[torch.Tensor]:
        return self.run_into(inputs, [])

    def run_into(self, inputs: list[Any], memory: list[Any]) -> tuple[torch.Tensor]:
        (x,) = inputs
        inputs.clear()
        memory[:] = [torch.mul(WEIGHT, x, out=memory[0]) if memory else WEIGHT * x]
        self.storages.append(weakref.ref(memory[0].untyped_storage()))
        return (memory[0],)


class Ahead:
    """A device's recording ahead of which a function is called."""

    def __init__(self, recording: Recording | None, function: Callable[[], object]) -> None:
        self.recording, self.function = recording, function

    def replay(self) -> None:
        self.function()
        if self.recording is not None:
            self.recording.replay()


def with_ahead(world: World, functions: list[Callable[[], object]]) -> Replayer:
    """A replayer that was replayed once; each replay calls the last of the functions before."""
    record = world.device.record

    def record_after(*arguments: Any) -> Any:
        recording, outputs = record(*arguments)
        return Ahead(recording, lambda: functions and functions.pop()()), outputs

    world.device.record = record_after  # type: ignore[method-assign]
    call = Replayer(Scaled(), ReplayFacts(), lambda: world.pool)
    for _ in range(2):
        call([torch.randn(3)])
    return call


class Littering(Scaled):
    """When it is recorded, it leaves garbage in a circle that holds its result."""

    def __init__(self, hold: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.hold = hold

    def run_into(self, inputs: list[Any], memory: list[Any]) -> tuple[torch.Tensor]:
        outputs = super().run_into(inputs, memory)
        circle: list[Any] = [self.hold(outputs[0])]
        if len(self.storages) == 2:
            circle.append(circle)
        return outputs


@pytest.mark.parametrize("hold", [torch.Tensor.detach, torch.Tensor.untyped_storage])
def test_garbage_that_holds_a_result_is_not_taken_for_the_recording(
    world: World, hold: Callable[[torch.Tensor], Any]
) -> None:
    call = Replayer(Littering(hold), ReplayFacts(), lambda: world.pool)
    x, y = torch.randn(2, 3)
    gc.disable()
    try:
        for _ in range(2):
            call([torch.randn(3)])
        held = hold(call([x])[0])
    finally:
        gc.enable()
    gc.collect()
    call([y])
    storage = held.untyped_storage() if isinstance(held, torch.Tensor) else held
    torch.testing.assert_close(torch.empty(0).set_(storage, 0, (5, 3), (3, 1)), scaled(x))


def test_a_replay_that_fails_holds_nothing(world: World) -> None:
    functions: list[Callable[[], object]] = []
    call, x = with_ahead(world, functions), torch.randn(3)
    functions.append(partial(pytest.fail, "out of order"))
    with pytest.raises(pytest.fail.Exception, match="out of order"):
        call([x])
    torch.testing.assert_close(call([x]), (scaled(x),))
    assert (world.device.recordings, call.replays) == (1, 2)


def test_a_call_in_the_middle_of_a_replay(world: World) -> None:
    functions: list[Callable[[], object]] = []
    call, found = with_ahead(world, functions), list[Any]()
    x, y = torch.randn(2, 3)
    functions.append(lambda: found.append(call([y])))
    torch.testing.assert_close(call([x]), (scaled(x),))
    torch.testing.assert_close(found, [(scaled(y),)])
    assert (world.device.recordings, call.replays) == (1, 2)


def test_results_in_inference_mode_are_of_it(world: World) -> None:
    call = replayed(scaled)
    for context in (torch.inference_mode, torch.no_grad, partial(torch.inference_mode, False)) * 2:
        x = torch.randn(3)
        with context():
            result = call(x)
            torch.testing.assert_close(result, scaled(x))
            assert result.is_inference() == torch.is_inference_mode_enabled()
            assert not result._is_view()
