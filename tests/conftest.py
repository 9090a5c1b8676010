"""What all tests share: Triton's interpreter, re-blessing of golden cases, and a collector that
leaves alone what collecting the tests has made.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

# Tests start interpreters by the hundred, each of which would compile all sources that it imports.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    bytecode = os.path.join(tempfile.gettempdir(), f"fusewright-bytecode-{os.getuid()}")
    os.environ.setdefault("PYTHONPYCACHEPREFIX", bytecode)

# Triton reads this once, when it is first imported, which torch's own front end may do in any test.
os.environ.setdefault("TRITON_INTERPRET", "1")

# At the end of the process, extensions complain of what was not collected. Not before: pytest
# collects garbage ten times as it ends.
atexit.register(gc.unfreeze)

# Tests change stages in passing, and look at what they do; those of kept plans turn them on.
os.environ.setdefault("FUSEWRIGHT_GRAPH_CACHE", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="write the outputs of golden tests into their cases"
    )
    parser.addoption(
        "--dynamic",
        action="store_true",
        help="compile with dynamic=True wherever a test says nothing",
    )
    parser.addoption(
        "--segments",
        action="store_true",
        help="run backward in segments as under DistributedDataParallel, one for each gradient",
    )
    parser.addoption(
        "--target",
        choices=("native", "python", "fx", "cpp"),
        help="what runs what surrounds the kernels, wherever a test says nothing",
    )


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--target"):
        os.environ["FUSEWRIGHT_TARGET"] = target
    if config.getoption("--segments"):
        from fusewright.torch_compat import distributed

        distributed.active_bucket_limits = lambda: (1,)
    config.addinivalue_line("markers", "whole_backward: left out with --segments")
    config.addinivalue_line("markers", "golden: compares an output with a case file")
    config.addinivalue_line(
        "markers",
        "dynamic(value): compiles so wherever it says nothing, with --dynamic and without; None is "
        "for tests that count what is compiled before sizes are seen to vary",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Seeding torch's random numbers keeps a text of the whole stack for each kind of accelerator
    that is not there, 2 ms; torch's database of samples does it before every sample. CUDA is left
    as it is: compiled programs seed it. A process that only hands tests to others needs no torch.

    To each logger that keeps its messages from the others pytest adds handlers, six times a test:
    torch's forty did more than most tests. What they say is seen by the root's handlers as well.
    """
    is_worker = hasattr(session.config, "workerinput")
    if session.config.getoption("numprocesses", None) and not is_worker:
        return
    import torch

    for accelerator in (torch.xpu, torch.mtia):
        if not accelerator.is_available():
            accelerator.manual_seed_all = lambda seed: None
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests, torch and its samples are a million objects that stay: going through
    them in each full collection took longer than the tests themselves.
    """
    gc.disable()
    result = yield
    let_samples_be_drawn_fast()
    gc.freeze()
    gc.enable()
    return result


def let_samples_be_drawn_fast() -> None:
    """Torch's database looks through the whole stack for a test of its own, by modules and source
    lines, twice for each operator, and seeds CUDA before each sample, which keeps a text of the
    stack where there is none: two thirds of the time of going through all samples.
    """
    core = sys.modules.get("torch.testing._internal.opinfo.core")
    if core is None:
        return
    import numpy
    import torch
    from torch.testing._internal import common_utils

    def set_rng_seed(seed: int | None = None) -> None:
        number = common_utils.SEED if seed is None else seed
        torch.default_generator.manual_seed(number)
        random.seed(number)
        numpy.random.seed(number)

    core.extract_test_fn = common_utils.extract_test_fn = lambda: None
    if not torch.cuda.is_available():
        common_utils.set_rng_seed = set_rng_seed


@pytest.fixture(autouse=True, scope="module")
def only_objects_of_this_file_are_collected() -> None:
    """What earlier files have left in caches stays, too: with all of it, each of the many tests
    that collect garbage took seconds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden tests rewrite their cases instead of failing."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(autouse=True)
def backward_in_one_piece(request: pytest.FixtureRequest) -> None:
    """Leave out, with `--segments`, what looks at a backward that is one graph."""
    if request.config.getoption("--segments") and request.node.get_closest_marker("whole_backward"):
        pytest.skip("it looks at a backward in one piece")


@pytest.fixture(autouse=True)
def dynamic_by_default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--dynamic`, or marked so, sizes and integers are symbols from the start."""
    mark = request.node.get_closest_marker("dynamic")
    if mark.args[0] if mark is not None else request.config.getoption("--dynamic"):
        from fusewright.capture.sizes import SizeHistory

        made = SizeHistory.__init__

        def always(self: SizeHistory, dynamic: bool | None = None, *others: Any) -> None:
            made(self, True if dynamic is None else dynamic, *others)

        monkeypatch.setattr(SizeHistory, "__init__", always)
