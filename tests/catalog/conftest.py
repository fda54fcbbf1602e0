from __future__ import annotations

from collections.abc import Iterator

import pytest

from kilonova.catalog.database import Catalog
from tests.databases import DIALECTS, Clock, empty_database


@pytest.fixture(params=DIALECTS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database of either kind."""
    with empty_database(request.param) as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(url: str, clock: Clock) -> Iterator[Catalog]:
    """A catalog without channels."""
    made = Catalog(url, clock)
    made.create()
    yield made
    made.close()
