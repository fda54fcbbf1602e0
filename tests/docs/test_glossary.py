"""The names that users see are terms of the glossary, and no class name means two things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import kilonova as kn
from kilonova.model.task import Mode, Production

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TERMS = [row.group(1) for row in re.finditer(r"^\| ([^|]+?) \| ", GLOSSARY, re.MULTILINE)][2:]


def classes() -> dict[str, list[str]]:
    """The modules that define each class with a public name."""
    found = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def is_defined(name: str) -> bool:
    """Whether the glossary mentions the words of a name."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()
    return re.search(rf"\b{words}\b", GLOSSARY.lower()) is not None


def test_each_term_is_defined_once_and_in_order() -> None:
    assert len(TERMS) > 50
    assert sorted(TERMS, key=str.lower) == TERMS
    assert len({term.lower() for term in TERMS}) == len(TERMS)


def test_no_class_name_is_defined_twice() -> None:
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}


def test_the_glossary_knows_modes_and_productions() -> None:
    named = [each.value for each in (*Mode, *Production)]
    assert [name for name in named if not is_defined(name)] == []


def test_the_glossary_knows_the_classes_of_the_python_api() -> None:
    named = [name for name in kn.__all__ if name[0].isupper() and name != "KilonovaError"]
    assert [name for name in named if not is_defined(name)] == []


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
