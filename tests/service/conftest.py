from __future__ import annotations

from collections.abc import Iterator

import pytest

from kilonova.catalog.database import Catalog
from kilonova.service.queries import ProjectReader
from tests.databases import DIALECTS, Clock, empty_database


@pytest.fixture(params=DIALECTS)
def looking(request: pytest.FixtureRequest) -> Iterator[ProjectReader]:
    """A look at a catalog without channels, in a database of either kind; time stands still."""
    with empty_database(request.param) as url:
        made = Catalog(url, Clock())
        made.create()
        yield ProjectReader(made)
        made.close()
