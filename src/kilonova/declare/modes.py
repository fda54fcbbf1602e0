"""Annotations of ports and results; to a type checker each is a DataFrame."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pyspark.sql import DataFrame

from kilonova.model.task import Mode, Production

All: TypeAlias = Annotated[DataFrame, Mode.ALL]
"""Snapshot at the latest readable point."""
New: TypeAlias = Annotated[DataFrame, Mode.NEW]
"""New input since the cursor, in the channel's own encoding."""
Old: TypeAlias = Annotated[DataFrame, Mode.OLD]
"""Snapshot at the cursor; only together with a port that reads new input."""
Changes: TypeAlias = Annotated[DataFrame, Mode.CHANGES]
"""Changes since the cursor as a strong delta: rows with a `_weight`."""
Inserts: TypeAlias = Annotated[DataFrame, Mode.INSERTS]
"""Rows added since the cursor, if none were removed; otherwise another variant runs."""
Base: TypeAlias = Annotated[DataFrame, Production.BASE]
"""Whole relation."""
Delta: TypeAlias = Annotated[DataFrame, Production.DELTA]
"""Changes, in the encoding of the channel written."""
