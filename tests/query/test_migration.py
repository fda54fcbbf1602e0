"""Migrations of stored relations whose query has changed equal their recomputation.

A fixture `migrations/NAME.sql` has an old query, a new one, and what turns the output of the old one into that of the
new one, after a line that says what it shows. `python -m tests.query.test_migration` writes what is derived for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.errors import KilonovaError
from kilonova.model.encoding import describe_encoding
from kilonova.query.migration.migration import Migration, NoMigration
from kilonova.query.rendering import render
from kilonova.query.syntax import UnsupportedSql
from tests.query.histories import KNOWN
from tests.query.query_pairs import TYPING_ERRORS, QueryPair, random_pair, worlds
from tests.seeds import SEED

FOLDER = Path(__file__).parent / "migrations"


def cases(path: Path) -> list[tuple[str, str, str, str]]:
    """What each case of a fixture shows, the old query, the new one, and the migration."""
    found = []
    for part in path.read_text().split("-- ")[1:]:
        title, _, queries = part.partition("\n")
        old, new, made = (text.strip() for text in queries.split(";\n", 2))
        found.append((title, old, new, made))
    return found


def described(migration: Migration | NoMigration) -> str:
    """A migration as its fixture shows it."""
    if isinstance(migration, NoMigration):
        return f"none: {migration.reason};"
    encoding = "the whole output" if migration.encoding is None else describe_encoding(migration.encoding)
    text = f"{encoding}: {migration.description};"
    if migration.delta is not None:
        text += "\n" + render(migration.delta, lambda scan: f"{scan.channel}_{scan.at.value}") + ";"
    if (other := migration.by_reference) is not None:
        text += f"\nor, with columns renamed by reference, {described(other)}"
    return text if migration.then is None else f"{text}\nthen {described(migration.then)}"


def derived(old: str, new: str) -> str:
    """What the fixture of two queries shows; its rows are compared with recomputed ones."""
    pair = QueryPair("v", old, new, KNOWN)
    pair.check(worlds(seed=1, count=10))
    return "\n".join(map(described, pair.migrations.values()))


CASES = [
    pytest.param(old, new, made, id=f"{path.stem}: {title}")
    for path in sorted(FOLDER.glob("*.sql"))
    for title, old, new, made in cases(path)
]


@pytest.mark.parametrize(("old", "new", "made"), CASES)
def test_a_migration_is_what_its_fixture_shows_and_equals_recomputation(old: str, new: str, made: str) -> None:
    assert derived(old, new) == made


@pytest.mark.parametrize("first", range(SEED, SEED + 60, 15))
def test_a_migration_between_any_two_queries_equals_recomputation(first: int) -> None:
    """`python -m tests.query.query_pairs 0 10000` tries more."""
    found = 0
    for seed in range(first, first + 15):
        try:
            pair, text, _ = random_pair(seed)
        except (UnsupportedSql, KilonovaError):
            continue
        try:
            pair.check(worlds(seed))
        except Exception as error:
            if not any(each in str(error) for each in TYPING_ERRORS):
                raise AssertionError(text) from error
        found += any(isinstance(each, Migration) for each in pair.migrations.values())
    assert found > 2


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.sql")):
        path.write_text(
            "\n".join(f"-- {title}\n{old};\n{new};\n{derived(old, new)}\n" for title, old, new, _ in cases(path))
        )
