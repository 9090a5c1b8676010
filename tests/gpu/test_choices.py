"""Choices among kernels on a GPU: every way computes what it should, the first call decides by the
GPU's clock, and recorded graphs launch what won.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fusewright
from fusewright.runtime import choices
from tests.gpu.support import CUDA, needs_gpu
from tests.kernels.ways_programs import PROGRAMS

pytestmark = needs_gpu


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("way", ["0", "1", "2", "on"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_gives_the_results(name: str, way: str) -> None:
    function, size = PROGRAMS[name]
    x = torch.randn(size, device=CUDA)
    compiled = fusewright.compile(function, options={"strict": True, "multi_kernel": way})
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)


def test_the_first_call_decides_and_a_later_compile_knows() -> None:
    x = torch.randn(256, 8192, device=CUDA)
    options = {"strict": True, "multi_kernel": "on"}

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    explained = fusewright.explain(softmax, options=options)(x)
    (choice,) = explained.choices
    (decision,) = choice.decisions
    assert set(choice.alternatives) == {"held", "walked", "split"} and decision.source == "timed"
    assert all(seconds is not None and 0 < seconds < 1e-2 for seconds in decision.seconds)
    (again,) = fusewright.explain(softmax, options=options)(x).choices
    assert again.decisions[0].source == "kept"


def test_recorded_graphs_launch_what_won() -> None:
    """Nothing is timed while a graph records: the warm-up call before it decides."""
    x = torch.randn(256, 8192, device=CUDA)
    options = {"multi_kernel": "on"}
    compiled = fusewright.compile(
        lambda x: x.sum(-1) * 2, mode="reduce-overhead", options={"strict": True, **options}
    )
    for _ in range(4):
        torch.testing.assert_close(compiled(x), x.sum(-1) * 2, rtol=1e-4, atol=1e-3)
    (compilation,) = fusewright.api.compilations(compiled)
    (choice,) = compilation.compiled.record.choices
    assert len(choice.decisions) == 1 and compilation.compiled.replayer.replays >= 1


def test_runs_are_timed_on_the_gpu() -> None:
    """A product of large matrices takes longer than a small sum, whatever the host does."""
    large, small = torch.randn(4096, 4096, device=CUDA), torch.randn(64, device=CUDA)
    result = torch.empty_like(large)
    runs = [lambda: torch.mm(large, large, out=result), lambda: small.add_(1)]
    for run in runs:
        run()
    slow, quick = choices.time_runs(runs, large.device)
    assert slow > 20 * quick > 0
