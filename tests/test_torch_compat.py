"""Which versions of torch are taken."""

from __future__ import annotations

import pytest

from fusewright.torch_version import unsupported_version


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu", "2.13.0a0+git12"])
def test_supported_versions(version: str) -> None:
    assert unsupported_version(version) is None


@pytest.mark.parametrize("version", ["2.10.2", "2.14.0", "1.13.1", "3.0.0"])
def test_others_are_refused_in_one_sentence(version: str) -> None:
    assert unsupported_version(version) == (
        f"fusewright needs torch 2.11 to 2.13, and this is torch {version}: "
        "pip install 'torch>=2.11,<2.14'"
    )
