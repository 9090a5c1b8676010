"""What all tests share: Triton's interpreter, and re-blessing of golden cases."""

from __future__ import annotations

import os

import pytest

# Triton reads this once, when it is first imported, which torch's own front end may do in any test.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="write the outputs of golden tests into their cases"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "golden: compares an output with a case file")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden tests rewrite their cases instead of failing."""
    return bool(request.config.getoption("--bless"))
