"""What errors of Spark mean."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from kilonova.errors import StorageFailed
from kilonova.warehouse.jobs import translate_errors


def test_files_that_vanish_while_they_are_written_may_be_there_next_time() -> None:
    text = "Job aborted: chmod: cannot access '/w/block_160/_temporary/0/_temporary': No such file or directory"
    with pytest.raises(StorageFailed, match="vanished") as raised, translate_errors("/w/block_160"):
        raise PySparkException(message=text)
    assert raised.value.transient


def test_what_an_error_means_is_not_read_in_the_plan_that_it_prints() -> None:
    text = "[X] a column is missing SQLSTATE: 42703\n'Project [raise_error(a row was retracted more often)]"
    with pytest.raises(PySparkException, match="a column is missing"), translate_errors(None):
        raise PySparkException(message=text)


def test_the_cause_of_a_failed_task_is_read_in_what_a_server_says() -> None:
    stack = "\tat a.b(C:1)\nCaused by: java.io.IOException: No space left on device"
    text = f"Job aborted: [TASK_WRITE_FAILED] it failed\n{stack}"
    with pytest.raises(StorageFailed, match="full"), translate_errors("/w/block_1"):
        raise PySparkException(message=text)
