"""Records do what frozen dataclasses with slots do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar

import pytest

from fusewright.records import field, record, replace


@record
class Point:
    x: int
    y: int = 0
    unit: ClassVar[str] = "cm"

    def moved(self, by: int) -> Point:
        return replace(self, x=self.x + by)


@record(kw_only=True)
class Labelled(Point):
    label: str
    seen: list[str] = field(default_factory=list, compare=False, repr=False)


@record(frozen=False)
class Counter:
    count: int = 0


@record(eq=False)
class Token:
    text: str


@record
class Sorted:
    items: tuple[int, ...]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.items))


@record
class Nothing:
    pass


def test_fields_are_given_by_position_or_name_and_have_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(y=3, x=2)) == (1, 0, Point(2, 3))
    assert Point.unit == "cm"
    assert Labelled(1, 2, label="a").seen == []
    assert Labelled(1, label="a").seen is not Labelled(1, label="a").seen
    assert Sorted((1, 2)).total == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Point(), r"Point.__init__\(\) missing 1 required positional argument: 'x'"),
        (lambda: Point(1, 2, 3), "takes from 2 to 3 positional arguments but 4 were given"),
        (lambda: Labelled(1, 2, "a"), "positional argument"),  # type: ignore[misc]
        (lambda: Point(1, z=3), "unexpected keyword argument 'z'"),  # type: ignore[call-arg]
    ],
)
def test_wrong_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_frozen_records_compare_and_hash_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(1, 3)
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != (1, 2)
    assert Labelled(1, label="a") == Labelled(1, label="a", seen=["other"])
    assert Labelled(1, label="a") != Point(1)
    assert {Nothing(): 1}[Nothing()] == 1
    assert Token("a") != Token("a")
    assert Counter(1) == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter())


def test_frozen_fields_stay_and_there_are_no_others() -> None:
    with pytest.raises(FrozenInstanceError, match="'x'"):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del Point(1).x
    counter = Counter()
    counter.count += 1
    assert counter.count == 1
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]
    assert not hasattr(Labelled(1, label="a"), "__dict__")


def test_they_print_match_copy_and_pickle() -> None:
    labelled = Labelled(1, 2, label="a", seen=["b"])
    assert repr(labelled) == "Labelled(x=1, y=2, label='a')"
    match labelled:
        case Labelled(x, y, label=label):
            assert (x, y, label) == (1, 2, "a")
    for copied in (copy.copy(labelled), copy.deepcopy(labelled)):
        assert copied == labelled
    assert pickle.loads(pickle.dumps(Point(3, 4))) == Point(3, 4)
    assert Point(1).moved(2) == Point(3)
