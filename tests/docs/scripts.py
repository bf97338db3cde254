"""Programs of scripts/, which is no package, as modules."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from tests.docs.blocks import ROOT


def script(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
