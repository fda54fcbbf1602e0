"""What errors of Spark mean."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from kilonova.errors import InputError, SchemaMismatch, StorageFailed
from kilonova.warehouse.spark_errors import is_result_too_large, translate_errors


def test_files_that_vanish_while_they_are_written_may_be_there_next_time() -> None:
    text = "Job aborted: chmod: cannot access '/w/block_160/_temporary/0/_temporary': No such file or directory"
    with pytest.raises(StorageFailed, match="vanished") as raised, translate_errors("/w/block_160"):
        raise PySparkException(message=text)
    assert raised.value.transient


def test_what_an_error_means_is_not_read_in_the_plan_that_it_prints() -> None:
    text = "[X] a column is missing SQLSTATE: 42703\n'Project [raise_error([KILONOVA_RETRACTED_TOO_OFTEN] )]"
    with pytest.raises(PySparkException, match="a column is missing"), translate_errors(None):
        raise PySparkException(message=text)


@pytest.mark.parametrize(
    "text",
    [
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `No space left on device` cannot be resolved",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `UNAVAILABLE` cannot be resolved",
        "[DIVIDE_BY_ZERO] Division by zero: FAILED_READ_FILE, Permission denied",
        "[USER_RAISED_EXCEPTION] a row was retracted more often than it occurs",
        "[USER_RAISED_EXCEPTION] Caused by: java.io.IOException: No space left on device",
    ],
)
def test_an_error_is_recognized_by_its_condition_not_by_texts_in_it(text: str) -> None:
    stack = f"Job aborted\n\tat a.b(C:1)\nCaused by: org.apache.spark.SparkException: {text} SQLSTATE: 22012"
    for message in (text, stack):
        with pytest.raises(PySparkException) as raised, translate_errors("/w/block_1"):
            raise PySparkException(message=message)
        assert str(raised.value) == message


def test_the_innermost_cause_that_is_known_says_what_an_error_is() -> None:
    text = (
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/w/block_1. SQLSTATE: 58030\n"
        "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        "file:///in/a%20b.csv. SQLSTATE: KD001\n"
        "Caused by: java.io.IOException: No space left on device"
    )
    with pytest.raises(StorageFailed, match="full"), translate_errors("/w/block_1"):
        raise PySparkException(message=text)
    with pytest.raises(InputError, match="Broken pipe") as raised, translate_errors("/w/block_1"):
        raise PySparkException(message=text.replace("No space left on device", "Broken pipe"))
    assert raised.value.path == "file:///in/a b.csv"


def test_the_error_of_a_failed_task_is_found_in_the_message_of_its_stage() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in "
        "stage 3.0 (TID 7) (host executor driver): org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] "
        '[KILONOVA_EXTRA_COLUMN] {"column":"more","file":"file:///in/a%20b.jsonl"} SQLSTATE: P0001'
    )
    with pytest.raises(SchemaMismatch) as raised, translate_errors(None):
        raise PySparkException(message=text)
    assert (raised.value.column, raised.value.path) == ("more", "file:///in/a b.jsonl")


def test_the_cause_of_a_failed_task_is_read_in_what_a_server_says() -> None:
    stack = "\tat a.b(C:1)\nCaused by: java.io.IOException: No space left on device"
    text = f"Job aborted: [TASK_WRITE_FAILED] it failed\n{stack}"
    with pytest.raises(StorageFailed, match="full"), translate_errors("/w/block_1"):
        raise PySparkException(message=text)


def test_results_that_spark_refuses_to_return_are_recognized() -> None:
    refused = (
        "Job aborted due to stage failure: Total size of serialized results of 3 tasks (1033.2 MiB) is bigger than"
        " spark.driver.maxResultSize (1024.0 MiB)"
    )
    assert is_result_too_large(PySparkException(message=refused))
    assert not is_result_too_large(PySparkException(message="Job aborted due to stage failure: Task 0 failed"))
