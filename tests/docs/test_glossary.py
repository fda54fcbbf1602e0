"""The names that users see are terms of the glossary, and no class name means two things."""

from __future__ import annotations

import ast
import re
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel

import kilonova as kn
from kilonova.cli.main import app
from kilonova.model.event import EventKind
from kilonova.model.task import Mode, Production
from kilonova.service.settings import Settings

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ROWS = [row.groups() for row in re.finditer(r"^\| ([^|]+?) \| ([^|]+?) \|", GLOSSARY, re.MULTILINE)][2:]
TERMS = [term for term, _ in ROWS]

STANDARD = frozenset(
    re.findall(
        r"\w+",
        "analyse api auth conf connection doc error format grace header health host kilonova limit load master memory "
        "metric namespace per proxy python rate read ready remote row shutdown single size spark stream timeout "
        "transport upload wait",
    )
)
"""Words of HTTP, Spark and Python that keep their meaning, and so are not in the glossary."""

UNITS = frozenset({"all", "after", "byte", "day", "interval", "max", "mb", "min"})


def stem(word: str) -> str:
    """Return the singular of a noun."""
    return word.removesuffix("ies") + "y" if word.endswith("ies") else re.sub(r"(?<![su])s$", "", word)


def words(name: str) -> tuple[str, ...]:
    """Return the words of a compound name."""
    return tuple(map(stem, re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", " ", name).lower().split()))


DEFINED = {words(part) for term in TERMS for part in re.split(r"[()]", term) if part.strip()}
DEFINED |= {words(name) for _, meaning in ROWS for name in re.findall(r"`([^`]+)`", meaning)}


def undefined(name: str) -> list[str]:
    """Return the words of a name that are neither a term of the glossary nor quoted in a meaning.

    >>> undefined("compaction-policies"), undefined("max_upload_mb"), undefined("gather_files")
    ([], [], ['gather'])
    """
    parts = words(name)
    found, start = [], 0
    while start < len(parts):
        length = next((count for count in (3, 2, 1) if parts[start : start + count] in DEFINED), 0)
        if not length and parts[start] not in STANDARD | UNITS:
            found.append(parts[start])
        start += length or 1
    return found


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Return the settings of a section, with the names of their sections."""
    for name, item in model.model_fields.items():
        kinds = (item.annotation, *typing.get_args(item.annotation))
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        yield from (f"{prefix}{name}",) if section is None else settings(section, f"{name}.")


def segments() -> Iterator[str]:
    """Return the fixed segments of the routes of the HTTP API."""
    for path in sorted((ROOT / "src" / "kilonova" / "api").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                    route = str(call.args[0].value)
                    yield from (each for each in route.split("/") if route.startswith("/") and re.match(r"\w", each))


PUBLIC = {
    "commands": list(typer.main.get_command(app).commands),  # type: ignore[attr-defined]
    "event kinds": [kind.value for kind in EventKind],
    "modes and productions": [each.value for each in (*Mode, *Production)],
    "names of the Python API": kn.__all__,
    "segments of routes": sorted(set(segments())),
    "settings": list(settings(Settings)),
}


def classes() -> dict[str, list[str]]:
    """The modules that define each class with a public name."""
    found = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_each_term_is_defined_once_and_in_order() -> None:
    assert len(TERMS) > 50
    assert sorted(TERMS, key=str.lower) == TERMS
    assert len({term.lower() for term in TERMS}) == len(TERMS)


def test_no_class_name_is_defined_twice() -> None:
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}


@pytest.mark.parametrize("kind", PUBLIC)
def test_public_names_consist_of_terms(kind: str) -> None:
    assert len(PUBLIC[kind]) >= 7
    assert {name: missing for name in PUBLIC[kind] if (missing := undefined(name))} == {}


def test_standard_words_are_used_and_are_no_terms() -> None:
    used = {word for names in PUBLIC.values() for name in names for word in words(name)}
    assert sorted((STANDARD | UNITS) - used) == []
    assert [word for word in sorted(STANDARD) if (word,) in DEFINED] == []


def test_each_setting_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in settings(Settings) if f"`{name}`" not in page] == []


def test_modules_that_the_docs_name_exist() -> None:
    table = (ROOT / "docs" / "design" / "architecture.md").read_text().partition("## Where does it go?")[2]
    named = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", table.partition("\n## ")[0])
    source = ROOT / "src" / "kilonova"
    missing = []
    for name in named:
        parts = name.split(".")
        places = [source.joinpath(*parts[:count]) for count in (len(parts), len(parts) - 1)]
        if not any(place.with_suffix(".py").exists() or (place / "__init__.py").exists() for place in places):
            missing.append(name)
    assert len(named) > 20
    assert missing == []
