"""Functions are pickled with what they need from the user's modules, which may be replaced meanwhile."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kilonova.declare.pickling import pickled

NAME = "helpers_that_are_replaced"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def imported(place: Path, factor: int) -> ModuleType:
    """A module of the user whose function calls another one."""
    file = place / f"{NAME}.py"
    file.write_text(f"def factor(): return {factor}\n\n\ndef scaled(x): return factor() * x\n")
    module = ModuleType(NAME)
    module.__file__ = str(file)
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    sys.modules[NAME] = module
    return module


def test_a_module_that_is_replaced_is_pickled_as_it_is_now(tmp_path: Path) -> None:
    for factor in (2, 20):
        content = pickled(imported(tmp_path, factor).scaled)
        del sys.modules[NAME]
        assert pickle.loads(content)(3) == 3 * factor


def test_functions_of_installed_packages_are_pickled_by_name() -> None:
    assert b"json" in pickled(json.dumps)
    assert pickle.loads(pickled(json.dumps)) is json.dumps
