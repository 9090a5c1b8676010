"""Which step comes before which."""

from __future__ import annotations

from fusewright.schedule.dependencies import Dependencies
from fusewright.schedule.effects import Effects


def test_steps_with_effects_keep_their_order() -> None:
    steps = [
        Effects((), ("a",), is_ordered=True),
        Effects((), ("b",)),
        Effects((), ("c",), is_ordered=True),
        Effects((), (), is_ordered=True),
    ]
    found = Dependencies(steps, memory=lambda name: name)
    assert found.must_precede(0, 2) and found.must_precede(2, 3) and found.must_precede(0, 3)
    assert not found.must_precede(0, 1) and not found.must_precede(1, 3)
