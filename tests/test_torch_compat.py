"""Which versions of torch are taken."""

from __future__ import annotations

import pytest

from fusewright.torch_version import refused_version, unknown_version


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.14.1", "2.13.0a0+git12"])
def test_known_versions(version: str) -> None:
    assert refused_version(version) is None
    assert unknown_version(version) is None


@pytest.mark.parametrize("version", ["2.10.2", "1.13.1"])
def test_old_ones_are_refused_in_one_sentence(version: str) -> None:
    assert refused_version(version) == (
        f"fusewright needs torch 2.11 or newer, and this is torch {version}: "
        "pip install 'torch>=2.11,<2.15'"
    )


@pytest.mark.parametrize("version", ["2.15.0", "3.0.0"])
def test_newer_ones_are_tried(version: str) -> None:
    assert refused_version(version) is None
    assert unknown_version(version) == (
        f"fusewright was tested with torch up to 2.14, and this is torch {version}: "
        "it is tried all the same; please report what fails"
    )
