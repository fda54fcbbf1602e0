"""The reference has every public name of the Python API, each with a description of its parameters."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kilonova
import kilonova.testing
from kilonova import errors
from kilonova.service.project import Project
from kilonova.service.resources import ProjectResources
from kilonova.service.settings import Settings

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md"))
TEXT = "\n".join(page.read_text() for page in PAGES)
ENTRY = re.compile(r"^::: (\S+)\n(?:    options:\n((?:      .*\n)+))?", re.MULTILINE)
ENTRIES = [found.groups() for found in ENTRY.finditer(TEXT)]
HEADINGS = dict(re.findall(r"^::: (\S+)\n    options:\n      heading: (\S+)$", TEXT, re.MULTILINE))


def resolved(path: str) -> Any:
    """Return the object that a path of names refers to."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise AssertionError(path)


def members(options: str | None) -> list[str]:
    """Return the members that an entry lists."""
    listed = re.search(r"members: \[(.*)\]|members:\n((?: +- \w+\n)+)", options or "")
    return re.findall(r"\w+", listed[1] or listed[2]) if listed else []


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the functions, classes and methods of the reference."""
    for path, options in ENTRIES:
        found = resolved(path)
        if inspect.ismodule(found):
            continue
        if callable(found) and (inspect.isfunction(found) or inspect.isclass(found)):
            yield path, found
        if inspect.isclass(found):
            names = members(options) or [name for name in dir(found) if not name.startswith("_")]
            methods = ((name, getattr(found, name)) for name in names if "members: false" not in (options or ""))
            yield from ((f"{path}.{name}", method) for name, method in methods if inspect.isfunction(method))


def test_every_exported_name_has_an_entry() -> None:
    paths = {path for path, _ in ENTRIES}
    there = [resolved(path) for path in paths]
    for module in (kilonova, kilonova.testing):
        missing = [name for name in module.__all__ if not any(getattr(module, name) is item for item in there)]
        assert missing == [], module.__name__


def test_every_method_of_a_project_has_an_entry(tmp_path: Path) -> None:
    project = Project(ProjectResources(Settings(), tmp_path, lambda _: None, None))
    methods = {name: each for name, each in vars(project).items() if inspect.ismethod(each)}
    assert len(methods) > 20
    for name, method in methods.items():
        path = f"{method.__func__.__module__}.{method.__func__.__qualname__}"
        assert HEADINGS.get(path) == f"project.{name}", path


def test_every_kind_of_error_has_an_entry() -> None:
    kinds = [
        name for name, each in vars(errors).items() if inspect.isclass(each) and each.__module__ == errors.__name__
    ]
    listed = next(members(options) for path, options in ENTRIES if path == "kilonova.errors")
    assert sorted([*listed, "KilonovaError"]) == sorted(kinds)


@pytest.mark.parametrize(("path", "item"), list(callables()), ids=lambda each: each if isinstance(each, str) else "")
def test_every_parameter_is_described(path: str, item: Callable[..., Any]) -> None:
    text = inspect.getdoc(item) or ""
    assert text, path
    if dataclasses.is_dataclass(item):
        names = [field.name for field in dataclasses.fields(item)]
        assert "Attributes:" not in text or [name for name in names if f"    {name}: " not in text] == []
        return
    names = [name for name in inspect.signature(item).parameters if name != "self"]
    described = re.findall(r"^    (\w+): ", text.partition("Args:")[2], re.MULTILINE)
    assert [name for name in names if name not in described] == [], path
