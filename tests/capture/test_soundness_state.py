"""A change of global state between two calls of a compiled function: never a stale result."""

from __future__ import annotations

import warnings

import pytest
import torch

from fusewright import api
from tests.capture.soundness.cases import Outcome, assert_agree, assert_no_defects
from tests.capture.soundness.sites import Site
from tests.capture.soundness.state import CHANGES, READS

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_the_calls_agree(read: str, change: str) -> None:
    function = READS[read]
    compiled = api.compile(function, backend="eager")
    site = Site(function=function, arguments=[X], replace=lambda new: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_agree(Outcome.of(compiled, site), Outcome.of(function, site), "before")
        with CHANGES[change]():
            found, expected = Outcome.of(compiled, site), Outcome.of(function, site)
        assert_agree(found, expected, "changed")
        assert_agree(Outcome.of(compiled, site), Outcome.of(function, site), "back")
    assert_no_defects(compiled)
