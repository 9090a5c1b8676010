"""Programs on another device: where their tensors are, and what counts as a difference. The device
`meta` stands for a GPU, as far as nothing reads values.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from fusewright.fuzz import campaign, execution
from fusewright.fuzz.checking import Way, check
from fusewright.fuzz.comparison import compare
from fusewright.fuzz.execution import run
from fusewright.fuzz.inputs import LAYOUTS, collected_leaves, fill, weights
from fusewright.fuzz.judge import Judge
from fusewright.fuzz.observation import Tensor
from fusewright.fuzz.program import RandomProgram
from fusewright.fuzz.workers import _works, started
from fusewright.records import replace

SOURCE = """
import torch
from fusewright.fuzz import fill, show

def make():
    return [fill(1, (3,), torch.float32, "normal")]

def f(x):
    return (x + torch.arange(3) * torch.ones(3, device="cpu").sum().item(), {result})
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_laid_out_on_the_device(layout: str) -> None:
    here = fill(3, (4, 6), layout=layout)
    with collected_leaves(device="meta") as leaves:
        there = fill(3, (4, 6), layout=layout, grad=True)
        module = weights(torch.nn.Linear(2, 3), 1)
    assert there.device.type == "meta" and leaves[0] is there
    assert (there.stride(), there.storage_offset()) == (here.stride(), here.storage_offset())
    assert {one.device.type for one in module.parameters()} == {"meta"}
    assert fill(3, (4, 6)).device.type == "cpu"


def test_what_a_program_makes_anew_is_on_the_device() -> None:
    """Unless it names another."""
    namespace = RandomProgram("tensors", 1, SOURCE.format(result="torch.tensor([1.0])")).load(
        device="meta"
    )
    total, one = namespace["f"](torch.zeros(3, device="meta"))
    assert total.device.type == one.device.type == "meta"


def test_a_program_for_the_cpu_alone_is_discarded() -> None:
    text = "Expected all tensors to be on the same device, but"
    source = SOURCE.format(result=f"{{}}[{text!r}]")
    assert check(RandomProgram("tensors", 1, source)).outcome == "discarded"
    other = check(RandomProgram("tensors", 1, SOURCE.format(result="{}['another text']")))
    assert other.outcome == "same exception"


def test_another_device_is_a_difference() -> None:
    program = RandomProgram("tensors", 1, SOURCE.format(result="x"))
    eager, other = list(run(program)), list(run(program))
    fact = other[0].facts["result[1]"]
    assert isinstance(fact, Tensor)
    other[0].facts["result[1]"] = replace(fact, device=torch.device("meta"))
    (finding,) = compare(eager, other, Judge(program))
    assert finding.kind == "wrong_meta" and "'meta'" in finding.detail


def test_a_device_that_fails_is_told() -> None:
    assert _works("cpu")
    assert not _works("meta")  # Its values cannot be read.


def test_a_worker_on_a_gpu_is_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a fork of this one, which may have used CUDA. Here it checks on the CPU, in that way."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forks"))
    requests, send = os.pipe()
    answers, answer = os.pipe()
    source = SOURCE.format(result="x * 2")
    with (tmp_path / "errors").open("w+") as errors:
        process = started(requests, answer, errors.fileno(), Way())
        os.close(requests)
        os.close(answer)
        os.write(send, (json.dumps(["tensors", 3, source]) + "\n").encode())
        os.close(send)
        with os.fdopen(answers) as lines:
            compiles, verdict = (json.loads(line) for line in lines)
        assert os.waitpid(process, 0)[1] == 0, Path(errors.name).read_text()
    assert compiles is None
    assert (verdict["outcome"], verdict["seed"], verdict["last"]) == ("right", 3, False)


def test_the_plan_of_a_campaign_on_a_gpu() -> None:
    usual = {"count": 1, "seconds": None, "only": None, "dynamic": False}
    plan = campaign.plan_from(kinds=None, device="cuda", **usual)
    assert plan.kinds == ("tensors",) and plan.way == Way(None, "cuda")
    assert plan.options == " --device cuda"
    assert "CUDA_VISIBLE_DEVICES" not in plan.environment
    assert campaign.plan_from(kinds=["modules"], device="cuda", **usual).kinds == ("modules",)
    with pytest.raises(ValueError, match="'cuba' is no device; did you mean 'cuda'"):
        campaign.plan_from(kinds=None, device="cuba", **usual)


def test_a_failed_assertion_is_of_the_program_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows when somebody waits, and ends the process's use of the device: where eager has it,
    there is nothing to compare with.
    """
    failing = ["compiled"]

    def wait(device: str) -> None:
        if failing.pop():
            raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(execution, "wait_for", wait)
    program = RandomProgram("tensors", 1, SOURCE.format(result="x"))
    assert check(program).outcome == "discarded"
    failing = ["compiled", ""]
    (finding,) = check(program).findings
    assert finding.kind == "extra_exception" and "wait: RuntimeError: CUDA" in finding.detail
