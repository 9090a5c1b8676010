"""What ATen promises of every variant, as small programs on operators whose other variants are
generated: run on a device and on the CPU, each must give the same values, or raise the same error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BEHAVIOURS: dict[str, Callable[[str, str], Any]] = {}
"""By name: a function of the operator's name and the device."""


def behaviour(function: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Enter a function under its name."""
    BEHAVIOURS[function.__name__] = function
    return function


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """The operator, functional or with an out."""
    return getattr(torch, name)(*args, **kwargs)


def in_place(name: str, target: Tensor, *args: Any) -> Tensor:
    """The operator's in-place variant."""
    return getattr(Tensor, f"{name}_")(target, *args)


def numbers(*size: int, device: str) -> Tensor:
    """Numbers from 1 on."""
    count = torch.Size(size).numel()
    return torch.arange(1, count + 1, dtype=torch.float32).view(size).clone().to(device)


def without_words(function: Callable[..., Any], *args: Any) -> Any:
    """A call that raises no more than the class of an error whose words are of a meta function."""
    try:
        return function(*args)
    except RuntimeError as error:
        raise type(error) from error


@behaviour
def computes(name: str, device: str) -> Any:
    x, y = numbers(2, 3, device=device), numbers(3, device=device)
    result, out = call(name, x, y), torch.zeros(2, 3, device=device)
    returned = call(name, x, y, out=out)
    changed = in_place(name, x, y)
    return result, out, x, returned is out, changed is x


@behaviour
def gaps_empty_and_scalars(name: str, device: str) -> Any:
    wide = numbers(3, 4, device=device)
    in_place(name, wide[:, ::2], wide[:, 1::2])
    out = torch.zeros(4, 3, device=device)
    call(name, wide, wide + 1, out=out.t())
    scalar, empty = numbers(1, device=device)[0], torch.ones(0, 3, device=device)
    return (
        *(wide, out, in_place(name, scalar, scalar + 1), in_place(name, empty, empty)),
        *(call(name, empty, scalar), call(name, scalar, scalar, out=torch.ones(0, device=device))),
    )


@behaviour
def nan_is_kept(name: str, device: str) -> Any:
    x = torch.tensor([float("nan"), 1.0, float("inf")]).to(device)
    return in_place(name, x, torch.ones(3, device=device))


@behaviour
def sizes_that_do_not_broadcast(name: str, device: str) -> Any:
    return without_words(call, name, numbers(2, device=device), numbers(3, device=device))


@behaviour
def sizes_that_do_not_broadcast_in_place(name: str, device: str) -> Any:
    return without_words(in_place, name, numbers(2, device=device), numbers(3, device=device))


@behaviour
def self_is_not_broadcast(name: str, device: str) -> Any:
    return in_place(name, numbers(3, device=device), numbers(2, 3, device=device))


@behaviour
def promotion_in_place_is_refused(name: str, device: str) -> Any:
    return in_place(name, numbers(3, device=device).to(torch.int64), numbers(3, device=device))


@behaviour
def promotion_makes_new_tensors(name: str, device: str) -> Any:
    whole, doubles = (numbers(3, device=device).to(t) for t in (torch.int32, torch.float64))
    x = numbers(3, device=device)
    return (
        *(call(name, whole, x), call(name, x, doubles), call(name, x, doubles[0])),
        *(in_place(name, x, whole), in_place(name, x, doubles)),
    )


@behaviour
def memory_that_overlaps_with_itself_is_refused(name: str, device: str) -> Any:
    return in_place(name, numbers(1, device=device).expand(3), numbers(3, device=device))


@behaviour
def an_out_that_overlaps_with_itself_is_refused(name: str, device: str) -> Any:
    x = numbers(3, device=device)
    return call(name, x, x, out=numbers(1, device=device).expand(3))


@behaviour
def memory_that_overlaps_in_part_is_refused(name: str, device: str) -> Any:
    buffer = numbers(4, device=device)
    return in_place(name, buffer[1:], buffer[:-1])


@behaviour
def an_out_that_overlaps_in_part_is_refused(name: str, device: str) -> Any:
    buffer = numbers(4, device=device)
    return call(name, buffer[1:], numbers(3, device=device), out=buffer[:-1])


def _resizing(name: str, device: str, out: Tensor) -> Any:
    x = numbers(2, 3, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(name, x, x, out=out)
    return out, sum("was resized" in str(warning.message) for warning in caught)


@behaviour
def an_out_is_resized_with_a_warning(name: str, device: str) -> Any:
    return _resizing(name, device, torch.zeros(4, device=device))


@behaviour
def an_empty_out_is_resized_silently(name: str, device: str) -> Any:
    return _resizing(name, device, torch.zeros(0, device=device))


@behaviour
def an_out_of_a_lesser_dtype_is_refused(name: str, device: str) -> Any:
    x = numbers(3, device=device)
    return call(name, x, x, out=torch.zeros(3, dtype=torch.int64, device=device))


@behaviour
def an_out_of_a_wider_dtype_is_converted_to(name: str, device: str) -> Any:
    x = numbers(3, device=device)
    return call(name, x, x + 1, out=torch.zeros(3, dtype=torch.float64, device=device))


@behaviour
def an_out_may_be_an_input(name: str, device: str) -> Any:
    x, y = numbers(3, device=device), numbers(3, device=device) + 1
    call(name, x, y, out=x)
    call(name, x, y, out=y)
    return x, y


@behaviour
def versions_are_counted(name: str, device: str) -> Any:
    x, out = numbers(3, device=device), torch.zeros(3, device=device)
    view, before = x[:2], (x._version, out._version)
    in_place(name, view, view + 1)
    call(name, x, x, out=out)
    return x._version - before[0], view._version - before[0], out._version - before[1]


@behaviour
def a_leaf_is_not_written_to(name: str, device: str) -> Any:
    return in_place(name, numbers(3, device=device).requires_grad_(), numbers(3, device=device))


@behaviour
def out_is_not_differentiated(name: str, device: str) -> Any:
    x = numbers(3, device=device).requires_grad_()
    return call(name, x, x, out=torch.zeros(3, device=device))


@behaviour
def an_out_that_wants_a_gradient_is_refused(name: str, device: str) -> Any:
    x = numbers(3, device=device)
    return call(name, x, x, out=torch.zeros(3, device=device).requires_grad_())


@behaviour
def gradients_go_through_in_place(name: str, device: str) -> Any:
    leaf = numbers(3, device=device).requires_grad_()
    x = leaf * 2
    in_place(name, x[:2], leaf[1:])
    x.sum().backward()
    return x.detach(), leaf.grad


@behaviour
def what_backward_needs_is_not_overwritten(name: str, device: str) -> Any:
    leaf = numbers(3, device=device).requires_grad_()
    x = leaf * 1
    square = x * x
    in_place(name, x, numbers(3, device=device))
    return square.sum().backward()


@behaviour
def a_scalar_may_be_on_the_cpu(name: str, device: str) -> Any:
    return in_place(name, numbers(3, device=device), torch.tensor(2.0))


def only_device(device: str) -> None:
    """Raise what a second device would have led to, where there is none."""
    if device == "cpu":
        raise RuntimeError


@behaviour
def inputs_on_two_devices_are_refused(name: str, device: str) -> Any:
    only_device(device)
    write = call if name == "atan2" else in_place  # which is the device's own kernel
    return without_words(write, name, numbers(3, device=device), torch.ones(3))


@behaviour
def an_out_on_another_device_is_refused(name: str, device: str) -> Any:
    only_device(device)
    if name == "floor_divide":  # whose out variant is the device's own kernel
        raise RuntimeError
    x = numbers(3, device=device)
    return without_words(lambda: call(name, x, x, out=torch.zeros(3)))
