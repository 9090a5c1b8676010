"""The C extension by itself, without the package around it, which imports torch.

`FUSEWRIGHT_EXTENSION` names another build of it: `test_other_pythons` sets it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[2] / "src" / "fusewright" / "native"


def _load() -> Any:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    path = os.environ.get("FUSEWRIGHT_EXTENSION") or str(NATIVE / f"_extension{suffix}")
    if not os.path.exists(path):
        from fusewright.native import _extension  # an installed package instead of a build in place

        return _extension
    specification = importlib.util.spec_from_file_location("fusewright.native._extension", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


extension = _load()
