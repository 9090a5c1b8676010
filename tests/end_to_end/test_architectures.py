"""A sample of the architectures that `benchmarks.architectures` measures: inference and a training
step are one graph each, with eager's results and gradients.
"""

from __future__ import annotations

import pytest

from benchmarks import architecture_report as report
from benchmarks.compilers import OURS
from benchmarks.measure_architecture import measure

ONE_GRAPH = [
    "DebertaV2Model",
    "LongformerModel",  # its masks are known values
    "GptOssForCausalLM",  # experts
    "JetMoeForCausalLM",  # parts whose sizes depend on data
    "MambaForCausalLM",  # a scan
    "T5ForConditionalGeneration",
    "Swinv2Model",
    "WavLMModel",
    "LlavaForConditionalGeneration",  # checks of values
]


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name: str) -> None:
    row = measure(OURS, name, timed=False)
    assert list(report.problems({name: row})) == []
    assert report.passes(row)
    assert report.is_whole(row)


def test_a_graph_for_each_part() -> None:
    """The experts that run are those that values tell, which breaks the graph."""
    row = measure(OURS, "DbrxForCausalLM", timed=False)
    assert report.passes(row), list(report.problems({"DbrxForCausalLM": row}))
    assert not report.is_whole(row)
