"""Translation of Spark's errors to Kilonova's.

An error is recognized by its causes, the innermost first: by their conditions (`FAILED_READ_FILE`), or, for errors of
Java and Hadoop, which have none, by their messages. Whatever else Spark prints, such as the plan, is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from kilonova.errors import EncodingError, InputError, KilonovaError, SparkUnavailable, StorageFailed
from kilonova.warehouse.guards import UnmetAssumption, guard_error
from kilonova.warehouse.storage import disk_full


@contextmanager
def translate_errors(path: str | None) -> Iterator[None]:
    """Translate Spark's errors to Kilonova's, where they are recognized.

    Args:
        path: the target path, if rows are written.

    Raises:
        KilonovaError: the translated error.
        UnmetAssumption: a row is in the wrong bucket, or rows are larger than expected.
        PySparkException: any other error of Spark, including those that PySpark leaves as Java errors.
    """
    try:
        yield
    except PySparkException as error:
        if (known := _recognized(_causes(error), path)) is not None:
            raise known from error
        raise
    except Py4JJavaError as error:
        causes = _causes(error)
        if (known := _recognized(causes, path)) is not None:
            raise known from error
        raise PySparkException(message=_sentence(causes) or _message(error)) from error
    except (Py4JError, ConnectionError, EOFError) as error:
        raise SparkUnavailable("Spark stopped during the operation", hint="Start again") from error


@contextmanager
def attribute_read_errors(channel: str) -> Iterator[None]:
    """Attribute errors that Spark raises while it reads a channel within the block to the channel.

    Raises:
        KilonovaError: a recognized error; `EncodingError` if the functions of a custom encoding raised.
        StorageFailed: any other error of Spark.
    """
    try:
        with translate_errors(None):
            yield
    except PythonException as error:
        problem = f"the functions of the encoding raised an error: {summarize_error(error)}"
        raise EncodingError(problem, channel=channel, hint="Correct them, and apply the workflow") from error
    except PySparkException as error:
        problem = f"the rows cannot be read: {summarize_error(error)}"
        raise StorageFailed(problem, channel=channel, hint="Spark's messages say more") from error


def summarize_error(error: PySparkException) -> str:
    """Return the sentence of a Spark error that states the reason, and the expression concerned.

    For an error within a Python function, the sentence is the last line of Python's message.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception): ", line)]
    sentence = (python[-1] if python else reason(error))[:400]
    fragments = (context.fragment() for context in error.getQueryContext() or ())
    expression = " ".join(next(fragments, "").split())
    shortened = expression if len(expression) <= 200 else f"{expression[:200]} …"
    return f"{sentence}, in {shortened}" if expression else sentence


_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_THEIRS = ("21", "22", "38", "P0")
_OUT_OF_RANGE = "22003"


def is_of_data(error: PySparkException) -> bool:
    """Return whether a Spark error is caused by the data or the query, however it is executed.

    These are the SQLSTATE classes for a wrong number of rows, for values (a division by zero, a cast), for exceptions
    of user functions, and for `raise_error`. Numeric overflow is excluded: sums of the same rows may overflow in one
    order and not in another.
    """
    found = _STATE.findall(_sentence(_causes(error)) or first_line(str(error)))
    state = found[-1] if found else error.getSqlState() or ""
    return state[:2] in _THEIRS and state != _OUT_OF_RANGE


def is_cancelled(error: PySparkException) -> bool:
    """Return whether a Spark error says that the work was cancelled."""
    return any("CANCEL" in cause.condition for cause in _causes(error))


def is_result_too_large(error: PySparkException) -> bool:
    """Return whether a Spark error says that rows were too many to return."""
    return any("spark.driver.maxResultSize" in cause.message for cause in _causes(error))


def reason(error: PySparkException) -> str:
    """Return the sentence of Spark that says why an operation failed, with its condition.

    It is that of the innermost cause that has a condition: those around it say which part of Spark failed.
    """
    return _sentence(_causes(error)) or first_line(str(error))


def _message(error: Py4JJavaError) -> str:
    thrown = error.java_exception
    return str(error) if thrown is None else str(thrown.getMessage() or thrown)


@dataclass(frozen=True, slots=True)
class _Cause:
    """One error of a chain of causes.

    Attributes:
        type: its Java class; empty if unknown.
        condition: Spark's condition; empty for errors that have none.
        message: the first line of its message, without both.
    """

    type: str
    condition: str
    message: str

    @property
    def is_of_system(self) -> bool:
        """Return whether it is an error of Java, Hadoop or Spark's machinery, rather than of a query or its code."""
        return not self.condition and not self.type.endswith("PythonException")


_CAUSED = "Caused by: "
_CAUSES = 20  # a chain of causes may be cyclic
_TYPED = re.compile(r"(?:\(?((?:[\w$]+\.)+[\w$]+)(?:\)|: |:?$) ?)?(?:\[([A-Z][A-Z0-9_.]*)\] ?)?(.*)")
_TASK = re.compile(r"Job aborted due to stage failure: .*?\(TID \d+\) \(.*?\): ")


def _causes(error: PySparkException | Py4JJavaError) -> list[_Cause]:
    """Return an error and its causes, the outermost first, without plans and stack traces."""
    thrown = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    lines = [] if isinstance(error, Py4JJavaError) else _messages(str(error))
    for _ in range(_CAUSES):
        if thrown is None:
            break
        lines += _messages(str(thrown.toString()))
        thrown = thrown.getCause()
    return [_parsed(line) for line in dict.fromkeys(lines)]


def _messages(text: str) -> list[str]:
    """Return a message's first line and the lines that begin a cause: causes in tasks or on a server are text."""
    first, *rest = text.splitlines() or [""]
    causes = [line.removeprefix(_CAUSED) for line in rest if line.startswith(_CAUSED)]
    if found := _TASK.search(first):
        return [first[: found.end()], first[found.end() :], *causes]
    return [first, *causes]


def _parsed(line: str) -> _Cause:
    """Return a cause from its first line.

    >>> _parsed("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed")
    _Cause(type='org.apache.spark.SparkException', condition='TASK_WRITE_FAILED', message='Task failed')
    """
    found = _TYPED.match(line)
    assert found is not None  # each part is optional
    return _Cause(found[1] or "", found[2] or "", found[3])


def _sentence(causes: Sequence[_Cause]) -> str | None:
    """Return the message of the innermost cause that has a condition; None for errors of Python code, and of others."""
    if any(cause.type.endswith("PythonException") for cause in causes):
        return None
    return next((f"[{each.condition}] {each.message}" for each in reversed(causes) if each.condition), None)


_UNREADABLE = ("FAILED_READ_FILE", "MALFORMED_RECORD_IN_PARSING", "MALFORMED_CSV_RECORD")
_READ = re.compile(r"while reading file (\S+?)\.(?:\s|$)")
_UNWRITABLE = ("Mkdirs failed", "ot a directory", "Permission denied", "Read-only file system", "quota exceeded")
_VANISHED = re.compile(r"_temporary\S*: No such file|_temporary\S* does not exist")
_GONE = ("SparkContext was shut down", "stopped SparkContext", "UNAVAILABLE")


def _recognized(causes: Sequence[_Cause], path: str | None) -> KilonovaError | UnmetAssumption | None:
    """Return the Kilonova error for a Spark error with its causes; None if it is not recognized."""
    for cause in reversed(causes):
        if (known := _known(cause, path)) is not None:
            return known
        if cause.condition.startswith(_UNREADABLE):
            return _unreadable(causes)
    return None


def _known(cause: _Cause, path: str | None) -> KilonovaError | UnmetAssumption | None:
    """Return the Kilonova error for one cause; None if it is not recognized."""
    if cause.condition == "USER_RAISED_EXCEPTION":
        return guard_error(cause.message)
    cancelled = cause.condition == "SPARK_JOB_CANCELLED"
    if (cause.is_of_system or cancelled) and any(sign in cause.message for sign in _GONE):
        return SparkUnavailable("Spark stopped during the operation", hint="Start again")
    if not cause.is_of_system:
        return None
    if "No space left on device" in cause.message:
        return disk_full(path)
    if path is not None and _VANISHED.search(cause.message):  # with Spark Connect after a lost connection
        return StorageFailed("the block's files vanished while they were written", path=path, hint="Start again")
    if path is not None and any(sign in cause.message for sign in _UNWRITABLE):
        return StorageFailed(f"the block cannot be written: {first_line(cause.message)}", path=path)
    return None


def _unreadable(causes: Sequence[_Cause]) -> InputError:
    """Return the error for a file that cannot be read, with the innermost reason."""
    files = [found[1] for cause in causes if (found := _READ.search(cause.message))]
    reason = next((cause for cause in reversed(causes) if cause.message), causes[-1])
    return InputError(
        f"a file cannot be read: {first_line(reason.message or reason.type)}",
        path=unquote(files[-1]) if files else None,
        hint="Repair or remove it; nothing was changed",
    )


def first_line(text: str) -> str:
    """Return the first non-blank line of a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason given"
