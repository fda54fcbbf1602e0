"""SQL over frames that are read again and again, whose temporary views are kept as long as the frames.

`SparkSession.sql` makes a view of each frame for each query, and drops it afterwards. That takes longer than the
analysis of a small query.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession


class FrameViews:
    """Temporary views of the frames of one session.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._classic = type(spark) is SparkSession  # Connect sends the plans of frames with a query, without views
        self._names: weakref.WeakKeyDictionary[DataFrame, str] = weakref.WeakKeyDictionary()
        self._unused: deque[str] = deque()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Make a view of a frame, which lasts as long as it; return the frame."""
        if self._classic:
            name = f"kilonova_{uuid4().hex}"
            frame.createOrReplaceTempView(name)
            self._names[frame] = name
            # Not dropped at once: that may be in the midst of a call to Java.
            weakref.finalize(frame, self._unused.append, name).atexit = False
        return frame

    def sql(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the result of a SQL query over frames, which it names in braces."""
        with suppress(IndexError):
            while True:
                self._spark.catalog.dropTempView(self._unused.popleft())
        given: dict[str, Any] = {
            name: frame if (view := self._names.get(frame)) is None else _View(view) for name, frame in frames.items()
        }
        return self._spark.sql(text, **given)


@dataclass(frozen=True, slots=True)
class _View:
    """Name of a view, which `SparkSession.sql` inserts as it is; it would quote a text."""

    name: str

    def __str__(self) -> str:
        return self.name
