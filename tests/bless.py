"""`python -m tests.bless [PATH ...]`: write what the golden tests now give into their files."""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-m", "golden", "--bless", *(sys.argv[1:] or ["tests"])]))
