"""Programs that were traced as on a GPU, and are kept as text, become kernels and modules. Small
kernels compute under Triton's interpreter what their loops say, and a sample compiles to machine
code for an A100 and an H100. All of them: `python -m tests.gpu.traced_programs`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import torch

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_names, structural_key
from fusewright.ir.group import Group, Reduce, Schedule
from fusewright.ir.limits import ProductForm
from fusewright.ir.parse import parse_program
from fusewright.ir.products import DOT
from fusewright.ir.reference_groups import evaluate_group
from fusewright.ir.text import print_group, print_program
from fusewright.kernels import KernelSet
from fusewright.kernels.triton import LIMITS, PRODUCT_TYPES, TritonKernel
from fusewright.kernels.triton.products import product_of
from fusewright.records import replace
from fusewright.schedule import schedule
from tests.gpu.traced_counts import FILE as COUNTS
from tests.gpu.traced_counts import counts
from tests.gpu.traced_programs import code_of, texts
from tests.kernels.triton.compiling import run_module
from tests.kernels.triton.launching import run_group
from tests.kernels.triton.model_kernels import numbers_of

PARTS = 4
"""How many tests the programs are dealt to."""

POINTS = 1 << 11
"""Groups of more points are not interpreted."""

INTERPRETED = 4
"""Of the others, each of this number."""

COMPILED = 90
"""Of all programs, each of this number is compiled."""

HALF = (torch.float16, torch.bfloat16)


@functools.cache
def schedules(part: int) -> dict[str, tuple[Schedule, KernelSet]]:
    """Code of a part of the programs, by name; kept, since two tests look at it."""
    return {name: code_of(parse_program(text)) for name, text in list(texts())[part::PARTS]}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_program_becomes_code(part: int) -> None:
    for name, (_, kernels) in schedules(part).items():
        assert kernels.definitions, name


def test_launches_calls_and_copies_of_models() -> None:
    """`python -m tests.gpu.traced_counts` writes what they are now."""
    assert counts() == COUNTS.read_text()


def test_texts_are_as_programs_are_printed_today() -> None:
    for _, text in list(texts())[:: 4 * PARTS]:
        assert print_program(parse_program(text)).rstrip("\n") == text.rstrip("\n")


def points(group: Group) -> int:
    """The most points that a stage has; 0 where one of the group's buffers has no element."""
    if any(int(size) == 0 for buffer in _buffers(group) for size in buffer.layout.size):
        return 0
    loops = ((*group.outer, *stage.inner) for stage in group.stages)
    return max(prod(int(loop.extent) for loop in nest) for nest in loops)


def _buffers(group: Group) -> Sequence[Any]:
    return (*group.reads, *group.writes)


def small_groups(part: int) -> Iterator[Group]:
    """A sample of the small groups, none of which has the structure of another."""
    groups: dict[str, Group] = {}
    for scheduled, _ in schedules(part).values():
        for work in scheduled.works:
            if isinstance(work, Group) and 0 < points(work) <= POINTS:
                groups.setdefault(structural_key(work, canonical_names(work)), work)
    return iter(list(groups.values())[::INTERPRETED])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", range(PARTS))
def test_small_kernels_compute_what_their_loops_say(part: int, tmp_path: Path) -> None:
    def launch(kernel: TritonKernel, count: int, arguments: Sequence[Any]) -> None:
        interpreter.run_kernel(kernel, tmp_path, count, arguments)

    for group in small_groups(part):
        generator = torch.Generator().manual_seed(0)
        expected = {buffer.name: numbers_of(buffer, generator) for buffer in _buffers(group)}
        computed = {name: tensor.clone() for name, tensor in expected.items()}
        try:
            evaluate_group(group, expected, {})
        except IndexError:  # Numbers at random need not lie within what they index.
            continue
        run_group(group, computed, launch, {}, None)
        is_half = any(tensor.dtype in HALF for tensor in expected.values())
        for buffer in group.writes:
            agree(computed[buffer.name], expected[buffer.name], is_half, print_group(group))


def agree(computed: torch.Tensor, expected: torch.Tensor, is_half: bool, text: str) -> None:
    """The interpreter cuts numbers off where they are rounded to half types, so those differ by
    some units in the last place, and what is summed of them by a part of the largest.
    """
    finite = expected.double()[expected.double().isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 1.0
    torch.testing.assert_close(
        computed,
        expected,
        equal_nan=True,
        rtol=1 / 32 if is_half else 1e-4,
        atol=max(largest, 1.0) * (1 / 32 if is_half else 1e-5),
        msg=lambda message: f"{message}\n{text}",
    )


@pytest.mark.parametrize("name", ["llama_backward", "nn_functional_scaled_dot_product_attention_2"])
def test_products_that_compute_their_operands_stay_products(name: str) -> None:
    """Gradients that are the same for all rows, and operands cast to single precision among them:
    what is no product is written as a sum, element by element.
    """
    text = next(text for own, text in texts() if own == name)
    limits = replace(
        LIMITS,
        multiplies=lambda product: product.dtype in PRODUCT_TYPES,
        product_form=lambda product: ProductForm(computes_operands=True),
    )
    works = schedule(parse_program(text), CompileContext(), lambda device: limits).works
    groups = [work for work in works if isinstance(work, Group)]
    dots = [group for group in groups if any(a.kind == DOT for a in reductions_of(group))]
    products = [product_of(group) for group in dots]
    assert None not in products
    assert not all(product.loads_operands for product in products if product is not None)


def reductions_of(group: Group) -> list[Reduce]:
    actions = (action for stage in group.stages for action in stage.actions)
    return [action for action in actions if isinstance(action, Reduce)]


@pytest.mark.thorough
def test_a_sample_compiles(tmp_path: Path) -> None:
    """In a process of its own: here, Triton interprets."""
    done = run_module(
        "tests.gpu.traced_programs", "--part", f"8/{COMPILED}", cache=tmp_path, seconds=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(" 0 failures")


@pytest.mark.thorough
def test_threads_have_registers_for_their_elements(tmp_path: Path) -> None:
    """Of two patterns whose gradients compute much, which once had too few. All patterns
    and models: `python -m tests.gpu.traced_programs --corpora patterns models`.
    """
    words = ("dropout_chain_backward", "bias_gelu_tanh_backward")
    done = run_module(
        *("tests.gpu.traced_programs", "--corpora", "patterns", "--part", "1/1", *words),
        cache=tmp_path,
        seconds=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("2 programs, 3 kernels")
