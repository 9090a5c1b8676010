"""Native plans: what each operation does, what they refuse, and that nothing is left behind."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright.native import CallPlan, read_tensor
from fusewright.runtime.generated import tensor_kind, with_layout

DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]
Operation = tuple[str, int, tuple[int | None, ...]]


def plan(
    *operations: tuple[Any, ...],
    inputs: int = 0,
    slots: int = 8,
    numbers: tuple[int, ...] = (),
    constants: tuple[Any, ...] = (),
) -> CallPlan:
    """A plan of operations written as (name, *operands); the first stands on line 1, and so on."""
    packed = tuple((name, line, operands) for line, (name, *operands) in enumerate(operations, 1))
    packed = tuple((name, line, tuple(operands)) for name, line, operands in packed)
    return CallPlan(packed, inputs, slots, numbers, constants, {}, "twin.py")


def number_of(*operations: tuple[Any, ...], numbers: tuple[int, ...]) -> Any:
    """What the last number of a plan is."""
    last = len(numbers) - 1
    operations = (*operations, ("make integer", 0, last), ("return", 1, 0))
    return plan(*operations, numbers=numbers)([])[0]


def raises(*_: Any) -> Any:
    raise KeyError("here")


@pytest.mark.parametrize(
    ("operation", "compute"),
    [
        ("add", lambda x, y: x + y),
        ("multiply", lambda x, y: x * y),
        ("//", lambda x, y: x // y),
        ("%", lambda x, y: x % y),
        ("min", min),
        ("max", max),
    ],
)
def test_numbers_are_computed_as_in_python(
    operation: str, compute: Callable[[int, int], int]
) -> None:
    values = (-(2**62), -7, -3, -1, 1, 2, 3, 7, 2**62)
    for left in values:
        for right in values:
            expected = compute(left, right)
            if -(2**63) <= expected < 2**63:
                assert number_of((operation, 2, 0, 1), numbers=(left, right, 0)) == expected


@pytest.mark.parametrize(
    ("operation", "left", "right", "error"),
    [
        ("add", 2**62, 2**62, OverflowError),
        ("multiply", 2**32, 2**32, OverflowError),
        ("//", -(2**63), -1, OverflowError),
        ("//", 1, 0, ZeroDivisionError),
        ("%", 1, 0, ZeroDivisionError),
    ],
)
def test_numbers_that_are_none(
    operation: str, left: int, right: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        number_of((operation, 2, 0, 1), numbers=(left, right, 0))


def test_numbers_are_read_from_objects() -> None:
    read = plan(
        ("read number", 0, 0), ("make integer", 1, 0), ("return", 1, 1), inputs=1, numbers=(0,)
    )
    assert read([2**40]) == (2**40,)
    with pytest.raises(OverflowError):
        read([2**70])
    with pytest.raises(TypeError):
        read(["text"])


def test_memory_is_allocated_and_seen_through_layouts() -> None:
    make = plan(
        ("allocate", 0, ~0, 2, 0, 1, 1, 2),
        ("reinterpret", 1, 0, 1, 3, 2, 4),
        ("reinterpret", 2, 1, 0, 2),
        ("call", None, ~1, 1, 0, None),
        ("return", 3, 0, 1, 2),
        numbers=(2, 3, 1, 4, 2),
        constants=(
            tensor_kind(torch.float64, "cpu"),
            lambda x: x.copy_(torch.arange(6).view(2, 3)),
        ),
    )
    whole, part, scalar = make([])
    assert torch.equal(whole, torch.arange(6, dtype=torch.float64).view(2, 3))
    assert whole.stride() == (3, 1) and type(whole) is torch.Tensor
    assert part.tolist() == [2, 3, 4, 5] and scalar.item() == 3
    assert not part._is_view() and part.untyped_storage().data_ptr() == whole.data_ptr()


def test_memory_that_there_is_not() -> None:
    """Torch's own function says so, with the exception that programs wait for."""
    kind = tensor_kind(torch.float32, "cpu")
    allocates = ("allocate", 0, ~0, 1, 0, 1)
    for size, text in ((-1, "negative"), (1 << 55, "allocate")):
        with pytest.raises(RuntimeError, match=text) as wanted:
            torch.empty_strided((size,), (1,))
        with pytest.raises(RuntimeError) as found:
            plan(allocates, numbers=(size, 1), constants=(kind,))([])
        assert str(found.value) == str(wanted.value)

    def make(size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        raise torch.OutOfMemoryError(f"{size} by {stride}")

    with pytest.raises(torch.OutOfMemoryError, match=r"\(-1,\) by \(1,\)"):
        plan(allocates, numbers=(-1, 1), constants=((*kind[:4], make),))([])


def allocated(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What the operation that allocates makes."""
    count = len(size)
    made = plan(
        ("allocate", 0, ~0, count, *range(2 * count)),
        ("return", 1, 0),
        numbers=(*size, *stride),
        constants=(tensor_kind(dtype, "cpu"),),
    )
    (tensor,) = made([])
    assert isinstance(tensor, torch.Tensor)
    return tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_of_tensors(dtype: torch.dtype) -> None:
    tensor = allocated((2, 3), (3, 1), dtype)
    assert read_tensor(tensor) == read_tensor(torch.empty(2, 3, dtype=dtype))
    assert type(tensor) is torch.Tensor


@pytest.mark.parametrize(
    ("size", "stride"),
    [
        ((), ()),
        ((0, 3), (3, 1)),
        ((2, 3), (1, 2)),
        ((4,), (0,)),
        ((2, 1, 3), (9, 7, 2)),
        ((1,) * 30, (1,) * 30),
    ],
)
def test_geometry_of_tensors(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    tensor = allocated(size, stride, torch.float32)
    expected = torch.empty_strided(size, stride)
    assert tensor.shape == expected.shape and tensor.stride() == expected.stride()
    assert tensor.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert tensor.data_ptr() % 64 == 0


def test_function_modes_are_passed_over_and_inference_mode_kept() -> None:
    with torch.device("meta"):
        assert allocated((2,), (1,), torch.float32).device == torch.device("cpu")
    with torch.inference_mode():
        assert allocated((2,), (1,), torch.float32).is_inference()
    tensor = allocated((2,), (1,), torch.float32)
    assert not tensor.is_inference() and not tensor.requires_grad
    tensor.requires_grad_().sum().backward()
    assert tensor.grad is not None


def test_inputs_are_moved_and_released() -> None:
    x = torch.ones(3)
    before = sys.getrefcount(x)
    given = [x]
    moved = plan(("move", 3, 0), ("return", 1, 3), inputs=1)
    (result,) = moved(given)
    assert result is x and given == []
    del result
    seen: list[int] = []
    released = plan(
        ("release", 0),
        ("call", None, ~0, 0, None),
        ("return", 0),
        inputs=1,
        constants=(lambda: seen.append(sys.getrefcount(x)),),
    )
    assert released([x]) == () and seen == [before] and sys.getrefcount(x) == before


def test_calls_take_keywords_lists_and_tuples() -> None:
    def function(*arguments: Any, **keywords: Any) -> Any:
        return arguments, keywords

    call = plan(
        ("list", 1, 2, 0, ~1),
        ("tuple", 2, 1, 0),
        ("call", 3, ~0, 4, 0, 1, 2, ~1, ~2),
        ("unpack", 3, 2, 4, None),
        ("return", 1, 4),
        inputs=1,
        constants=(function, 5, ("last",)),
    )
    assert call([7]) == ((7, [7, 5], (7,)),)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("mm", ((2, 3), (3, 4))),
        ("bmm", ((5, 2, 3), (5, 3, 4))),
        ("addmm", ((4,), (2, 3), (3, 4))),
        ("addmm", ((2, 4), (2, 3), (3, 4))),
    ],
)
def test_products(kind: str, sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> None:
    """Of tensors also by torch's C function; of a tensor's subclass by the function given."""

    class Subclass(torch.Tensor): ...

    called: list[str] = []

    def function(*tensors: torch.Tensor, out: torch.Tensor) -> None:
        called.append(kind)
        getattr(torch, kind)(*tensors, out=out)

    count = len(sizes)
    made = plan(
        (kind, ~0, *range(count), count, ~1),
        ("return", 1, count),
        inputs=count + 1,
        constants=(function, ("out",)),
    )
    factors = [torch.randn(size).to(dtype) for size in sizes]
    factors[-1] = factors[-1].mT.contiguous().mT
    expected = getattr(torch, kind)(*factors)
    out = torch.empty_like(expected)
    version = out._version
    assert made([*factors, out])[0] is out and torch.equal(out, expected)
    assert out._version == version + 1 and not called
    out.zero_()
    made([*factors[:-1], factors[-1].as_subclass(Subclass), out])
    assert torch.equal(out, expected) and called == [kind]


def test_products_that_are_refused_say_why() -> None:
    made = plan(("mm", ~0, 0, 1, 2, ~1), inputs=3, constants=(torch.mm, ("out",)))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        made([torch.ones(2, 3), torch.ones(2, 3), torch.empty(2, 3)])
    with pytest.raises(SystemError, match="empty slot"):
        plan(("mm", ~0, 0, 1, 2, ~1), constants=(torch.mm, ("out",)))([])


def test_another_count_of_results_is_an_error() -> None:
    for results in ((1,), (1, 2, 3)):
        unpacked = plan(
            ("call", 0, ~0, 0, None), ("unpack", 0, 2, 1, 2), constants=(lambda r=results: r,)
        )
        with pytest.raises(ValueError, match="results, not 2"):
            unpacked([])
    with pytest.raises(TypeError, match="no tuple or list"):
        plan(("call", 0, ~0, 0, None), ("unpack", 0, 1, 1), constants=(lambda: 3,))([])


BYTES, FLOATS = tensor_kind(torch.uint8, "cpu"), tensor_kind(torch.float32, "cpu")


def test_buffers_lie_in_an_arena() -> None:
    place = plan(
        ("allocate", 1, ~0, 1, 0, 1),
        ("place", 2, 1, ~1, 64, 2, 2, 3, 3, 1),
        ("place", 3, 1, ~1, 128, 2, 2, 3, 3, 1),
        ("copy", 2, 0),
        ("copy", 3, 2),
        ("return", 3, 1, 2, 3),
        inputs=1,
        numbers=(256, 1, 2, 3),
        constants=(BYTES, FLOATS),
    )
    x = torch.randn(2, 3)
    arena, first, second = place([x])
    assert first.data_ptr() == arena.data_ptr() + 64 and first.dtype is torch.float32
    assert second.data_ptr() == arena.data_ptr() + 128 and second.stride() == (3, 1)
    assert torch.equal(first, x) and torch.equal(second, x)
    assert not first.requires_grad and not first._is_view()
    weak = arena.untyped_storage()._weak_ref()
    del arena, first
    assert not torch.UntypedStorage._expired(weak)
    del second
    assert torch.UntypedStorage._expired(weak)
    torch.UntypedStorage._free_weak_ref(weak)


@pytest.mark.parametrize(
    "operation", [("place", 2, 7, ~0, 0, 1, 0, 0), ("point", 2, 7, 0), ("point", 2, 0, 0)]
)
def test_where_there_is_no_arena_nothing_is_placed(operation: tuple[Any, ...]) -> None:
    refused = plan(operation, ("return", 0), inputs=1, numbers=(1,), constants=(FLOATS,))
    with pytest.raises(RuntimeError, match="cannot place a buffer in its arena"):
        refused([3])


def test_an_address_is_no_object() -> None:
    """Only kernels take it; a slot that has held one can hold anything else."""
    operations = (("allocate", 1, ~0, 1, 0, 1), ("point", 2, 1, 64))
    others: dict[str, Any] = {"inputs": 1, "numbers": (256, 1), "constants": (BYTES,)}
    with pytest.raises(SystemError, match="empty slot"):
        plan(*operations, ("return", 1, 2), **others)([None])
    held = plan(*operations, ("move", 2, 0), ("return", 1, 2), **others)
    assert held(["a value"]) == ("a value",)


def test_layouts_are_seen_to() -> None:
    ensure = plan(
        ("ensure layout", 0, ~0, ~2, ~1, 2, 0, 1, 1, 2),
        ("return", 1, 0),
        inputs=1,
        numbers=(2, 3, 1),
        constants=(with_layout, tensor_kind(torch.float32, "cpu"), "a test"),
    )
    x = torch.randn(2, 3)
    assert ensure([x])[0] is x
    other = torch.randn(3, 2).t()
    (found,) = ensure([other])
    assert torch.equal(found, other) and found.stride() == (3, 1)
    for wrong in (torch.zeros(3, 2), x.double()):
        with pytest.raises(RuntimeError, match="a test: returned"):
            ensure([wrong])


def test_copies_are_counted_as_writes() -> None:
    x, y = torch.zeros(3), torch.ones(3)
    version = x._version
    plan(("copy", 0, 1), ("return", 0), inputs=2)([x, y])
    assert torch.equal(x, y) and x._version == version + 1


@pytest.mark.parametrize(
    "operation",
    [
        ("nothing such",),
        ("release", 8),
        ("release", -1),
        ("release", None),
        ("release", 0, 0),
        ("release",),
        ("add", 0, 0, 1),
        ("move", 0, ~0),
        ("return", 2, 0),
        ("return", 2**40),
        ("return", -1),
        ("return", 1, ~2),
        ("call", None, 0, 0, None),
        ("call", None, ~0, 0, ~0),
        ("call", None, ~0, 1, 0, ~1),
        ("call", None, ~0, 1, 0, ~2),
        ("mm", ~0, 0, 0, 0, ~0),
        ("mm", ~0, 0, 0, 0, ~1),
        ("allocate", 0, ~0, 1, 0),
        ("launch", ~0, 1, 0, 1, 0, 0),
    ],
    ids=str,
)
def test_operands_are_checked(operation: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="of a plan"):
        plan(operation, numbers=(0,), constants=(raises, ("x", "y")))


def test_what_is_no_operation() -> None:
    for operations in (("release",), (("release", 1, [0]),), ((1, 1, (0,)),), (("release", 1),)):
        with pytest.raises(TypeError):
            CallPlan(operations, 0, 1, (), (), {}, "twin.py")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        CallPlan((("release", "1", (0,)),), 0, 1, (), (), {}, "twin.py")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        CallPlan((), 2, 1, (), (), {}, "twin.py")


def test_what_plans_are_called_with() -> None:
    made = plan(("return", 1, 0), inputs=1)
    assert made([5]) == made(5) == (5,) and made((5,)) == ((5,),)
    for wrong in ((), (1, 2), ([], 1)):
        with pytest.raises(ValueError, match=f"takes 1 inputs; {len(wrong)} given"):
            made(*wrong)
    with pytest.raises(TypeError, match="no arguments by name"):
        made(x=1)
    given = [1, 2]
    with pytest.raises(ValueError, match="takes 1 inputs; 2 given"):
        made(given)
    assert given == [1, 2]


def test_empty_slots_and_wrong_objects_are_errors() -> None:
    for operation in (("return", 1, 0), ("read number", 0, 0), ("copy", 0, 1)):
        with pytest.raises(SystemError, match="empty slot"):
            plan(operation, numbers=(0,))([])
    with pytest.raises(RuntimeError, match="another layout"):
        plan(("reinterpret", 1, 0, 0, 0), inputs=1, numbers=(0,))([3])
    with pytest.raises(TypeError, match="does not take"):
        plan(("launch", ~0, 0, 0, 0, 1), numbers=(0,), constants=(raises,))([])
    with pytest.raises(TypeError, match="kind of tensors"):
        plan(("allocate", 0, ~0, 0), constants=(3,))([])


def test_tracebacks_name_the_twin() -> None:
    failing = plan(("move", 1, 0), ("call", None, ~0, 1, 1, None), inputs=1, constants=(raises,))
    with pytest.raises(KeyError) as raised:
        failing([1])
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [(one.filename, one.lineno, one.name) for one in frames[1:-1]] == [
        ("twin.py", 2, "call")
    ]
    assert frames[-1].name == "raises"


EVERY_KIND: tuple[tuple[Any, ...], ...] = (
    ("read number", 0, 0),
    ("add", 2, 0, 1),
    ("allocate", 2, ~0, 1, 2, 1),
    ("allocate", 3, ~0, 1, 2, 1),
    ("place", 4, 3, ~0, 0, 1, 2, 1),
    ("point", 5, 3, 8),
    ("reinterpret", 4, 2, 1, 1, 1, 1),
    ("make integer", 5, 2),
    ("list", 6, 2, 5, 4),
    ("call", 7, ~1, 2, 6, 1, None),
    ("unpack", 7, 3, 5, None, 6),
    ("ensure layout", 6, ~2, ~4, ~0, 1, 2, 1),
    ("copy", 1, 3),
    ("release", 4),
    ("move", 4, 2),
    ("tuple", 7, 2, 4, 3),
    ("return", 3, 7, 6, 1),
)
"""A program with operations of all kinds but kernels, of a number and a tensor of it plus 1."""


def of_every_kind(fails_before: int | None = None) -> CallPlan:
    """That program; before the operation of a number, one that raises."""
    operations = list(EVERY_KIND)
    if fails_before is not None:
        operations.insert(fails_before, ("call", None, ~3, 0, None))
    constants = (
        tensor_kind(torch.float32, "cpu"),
        lambda items, other: (items, None, other + 1),
        with_layout,
        raises,
        "a test",
    )
    return plan(*operations, inputs=2, numbers=(0, 1, 0), constants=constants)


def live_tensors() -> int:
    """How many tensor objects there are."""
    gc.collect()
    return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())


def counted(*objects: Any) -> list[int]:
    """How many references there are to each."""
    return [sys.getrefcount(one) for one in objects]


def test_an_error_at_each_operation_leaves_nothing_behind() -> None:
    x = torch.zeros(4)
    assert len(of_every_kind()([3, x])) == 3
    for place in range(len(EVERY_KIND) + 1):
        failing = of_every_kind(place)
        tensors, references = live_tensors(), counted(x, raises)
        for _ in range(10):
            inputs = [3, x]
            with pytest.raises(KeyError, match="here"):
                failing(inputs)
            assert inputs == []
        assert live_tensors() <= tensors, place  # other tests' may have died
        assert counted(x, raises) == references, place


def test_memory_is_given_back() -> None:
    """Also that of tensors which never had an object."""
    large = plan(
        ("allocate", 0, ~0, 1, 0, 1),
        ("allocate", 0, ~0, 1, 0, 1),
        ("reinterpret", 1, 0, 1, 0, 1, 2),
        ("call", None, ~1, 0, None),
        numbers=(1 << 20, 1, 0),
        constants=(tensor_kind(torch.float32, "cpu"), raises),
    )
    for _ in range(3000):  # 24 GiB, were they kept
        with pytest.raises(KeyError):
            large([])


def test_a_plan_calls_itself() -> None:
    holder: list[CallPlan] = []

    def deeper(depth: int) -> Any:
        return holder[0]([depth - 1])[0] + 1 if depth else 0

    holder.append(
        plan(("call", 1, ~0, 1, 0, None), ("return", 1, 1), inputs=1, constants=(deeper,))
    )
    assert holder[0]([20]) == (20,)


def test_a_plan_may_let_go_of_itself() -> None:
    holder: list[CallPlan] = []
    holder.append(
        plan(("call", None, ~0, 0, None), ("return", 1, ~1), constants=(holder.clear, "kept"))
    )
    assert holder[0]([]) == ("kept",)


def test_plans_of_many_values_live_on_the_heap() -> None:
    count = 2000
    adds = [("add", n + 1, n, 0) for n in range(count)]
    made = plan(
        *adds,
        ("make integer", count - 1, count),
        ("return", 1, count - 1),
        slots=count,
        numbers=(1,) * (count + 1),
    )
    assert made([]) == (count + 1,)


def test_sixteen_threads_call_one_plan() -> None:
    made = of_every_kind()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(200):
                x = torch.zeros(number + 1)
                (first, _), second, third = made([number, x])
                assert first.shape == (number + 1,) and third is x
                assert second.shape == (number + 1,)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_plans_in_a_cycle_are_collected() -> None:
    class Function:
        plan: CallPlan

        def __call__(self) -> None: ...

    alive = [Function()]
    alive[0].plan = plan(("call", None, ~0, 0, None), constants=(alive[0],))
    died: list[None] = []
    import weakref

    weakref.finalize(alive[0], died.append, None)
    alive.clear()
    gc.collect()
    assert died


def test_sizes_and_strides_are_read() -> None:
    for kind, expected in (("read size", 4), ("read stride", 1)):
        read = plan(
            (kind, 0, 0, 1), ("make integer", 1, 0), ("return", 1, 1), inputs=1, numbers=(0,)
        )
        assert read([torch.ones(3, 4)]) == (expected,)
        for wrong in (torch.ones(3), 5):
            with pytest.raises(RuntimeError, match="no dimension 1"):
                read([wrong])
