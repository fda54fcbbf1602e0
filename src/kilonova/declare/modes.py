"""The annotations of ports and results; to a type checker each is a DataFrame."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pyspark.sql import DataFrame

from kilonova.model.task import Mode, Production

All: TypeAlias = Annotated[DataFrame, Mode.ALL]
"""The snapshot at the newest readable point."""
New: TypeAlias = Annotated[DataFrame, Mode.NEW]
"""What came since the cursor, in the channel's own encoding."""
Old: TypeAlias = Annotated[DataFrame, Mode.OLD]
"""The snapshot at the cursor; only beside a port that reads what is new."""
Changes: TypeAlias = Annotated[DataFrame, Mode.CHANGES]
"""What came since the cursor as a strong delta: rows with a `_weight`."""
Inserts: TypeAlias = Annotated[DataFrame, Mode.INSERTS]
"""The rows that came since the cursor, where none went; where one did, another variant runs."""
Base: TypeAlias = Annotated[DataFrame, Production.BASE]
"""The whole relation."""
Delta: TypeAlias = Annotated[DataFrame, Production.DELTA]
"""What changes, in the encoding of the channel written."""
