"""What errors of Spark mean."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from kilonova.errors import StorageFailed
from kilonova.warehouse.jobs import translated


def test_files_that_vanish_while_they_are_written_may_be_there_next_time() -> None:
    text = "Job aborted: chmod: cannot access '/w/block_160/_temporary/0/_temporary': No such file or directory"
    with pytest.raises(StorageFailed, match="vanished") as raised, translated("/w/block_160"):
        raise PySparkException(message=text)
    assert raised.value.transient
