"""Spark session: an existing one, one on a cluster or a Connect server, or a local one.

A session that is active when Kilonova starts belongs to its creator: it is used as it is except for `RELIED_ON`, and
never stopped. Otherwise Kilonova opens one and stops it. The user's configuration takes precedence over Kilonova's,
except for `RELIED_ON`: without it merges of aligned blocks would shuffle and sort, and sums that overflow would be
null, which counts as nothing when added to others.

Nothing is written to the working directory, and only errors are printed to the terminal.
"""

from __future__ import annotations

import math
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.util import _parse_memory

from kilonova.errors import SparkUnavailable
from kilonova.jvm import cds_archive
from kilonova.jvm.runtime import cache_directory, find_java, shim
from kilonova.warehouse.py4j_cache import cache_lookups

RELIED_ON = {
    "spark.sql.legacy.bucketedTableScan.outputOrdering": "true",
    "spark.sql.sources.bucketing.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
}
"""Configuration set on every session, regardless of its creator; all of it can be set at runtime."""

_REPEATING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # kilobytes that repeat the exception

_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set where spark-submit started this process, and Java before it

_PAGES = 8192
"""The number of pages that a task has at most."""

_CONNECT_PORT = 15002
_CONNECT_PATIENCE = 10.0  # seconds; Spark's own client keeps trying for minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of the Spark session.

    Attributes:
        master: a master's URL, such as `local[2]` or `spark://host:7077`; None leaves the choice to
            spark-submit, and without it means this machine.
        remote: a Connect server's URL, such as `sc://host:15002`; it excludes a master.
        conf: configuration that takes precedence over Kilonova's, as pairs of key and value.
        class_data_archive: whether to use the class-data archive if it exists.
    """

    master: str | None = None
    remote: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    class_data_archive: bool = True

    def __post_init__(self) -> None:
        if self.master is not None and self.remote is not None:
            raise ValueError("a master and a remote exclude each other")


def open_session(settings: SparkSettings) -> tuple[SparkSession, bool]:
    """Return the active session, or a new one.

    Returns:
        The session, and whether it is new: the caller must stop a new one.

    Raises:
        SparkUnavailable: Spark cannot be started or reached.
    """
    existing = _existing()
    if existing is None:
        for logger in _REPEATING:
            PySparkLogger.getLogger(logger).disabled = True
    session = existing or (_connect(settings) if _is_remote(settings) else _start(settings))
    for key, value in RELIED_ON.items():
        session.conf.set(key, value)
    return session, existing is None


def when_java_ends(call: Callable[[], object]) -> None:
    """Call a function in a separate thread when the Java process that PySpark started ends; never if there is none."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return

    def watch() -> None:
        process.wait()
        call()

    threading.Thread(target=watch, name="java", daemon=True).start()


def wait_for_java() -> None:
    """Wait until PySpark's Java process responds: returns at once if there is none, never if it is suspended."""
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Py4JError, OSError):  # its end is detected elsewhere
            gateway.jvm.System.nanoTime()


def _existing() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _is_remote(settings: SparkSettings) -> bool:
    return settings.remote is not None or (settings.master is None and "SPARK_REMOTE" in os.environ)


def _connect(settings: SparkSettings) -> SparkSession:
    url = settings.remote or os.environ["SPARK_REMOTE"]
    _expect_server(url)
    builder = SparkSession.builder.remote(url)
    for key, value in {"spark.sql.session.timeZone": "UTC", **dict(settings.conf)}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # gRPC, TLS, authentication and PySpark errors have no common class
        raise SparkUnavailable(
            f"The Spark Connect server at {_address(url)} refused a session: {_first_line(error)}",
            hint="Its log says more; its version should be that of the installed PySpark",
        ) from error


def _expect_server(url: str) -> None:
    host, port = _host_and_port(url)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_PATIENCE).close()
    except OSError as error:
        raise SparkUnavailable(
            f"No Spark Connect server answers at {_address(url)}: {error.strerror or error}",
            hint="Start one with Spark's sbin/start-connect-server.sh, or leave the remote out",
        ) from error


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:  # the port is not a number
        host = None
    if parts.scheme != "sc" or host is None:
        raise SparkUnavailable(f"{url!r} is not the URL of a Spark Connect server", hint="Write it as sc://host:15002")
    return host, port


def _address(url: str) -> str:
    """Return the URL without its parameters, one of which may be a token."""
    host, port = _host_and_port(url)
    return f"sc://{host}:{port}"


def _start(settings: SparkSettings) -> SparkSession:
    if _GATEWAY in os.environ:
        return _build(settings, java_options="")
    java, cache = find_java(os.environ), cache_directory()
    variables = {"JAVA_HOME": str(shim(java, cache))}
    if _is_local(settings) and "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable  # the Python on PATH may lack our packages
    with _environment(variables):
        archive = cds_archive.archive_path(java, cache)
        if not settings.class_data_archive or not archive.is_file():
            return _build(settings, java_options=_java_options())
        try:
            return _build(settings, java_options=f"{_java_options()} {cds_archive.using_archive(java, archive)}")
        except SparkUnavailable:  # a damaged archive can crash Java before Spark is reached
            cds_archive.discard_archive(archive)
            return _build(settings, java_options=_java_options())


def session_options(settings: SparkSettings, java_options: str) -> dict[str, str]:
    """Return the initial configuration of a new classic session; pure except for the memory size."""
    given = dict(settings.conf)
    options = {
        "spark.app.name": "kilonova",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.scheduler.mode": "FAIR",  # several runs and tasks run concurrently
        "spark.sql.codegen.cache.maxEntries": "5000",  # 1000 are too few for a workflow of twenty tasks
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    if master := _master(settings):
        options["spark.master"] = master
    if _is_local(settings):
        options |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{_driver_memory() >> 20}m",
            "spark.sql.shuffle.partitions": str(max(32, 4 * (os.cpu_count() or 1))),
            "spark.sql.warehouse.dir": (cache_directory() / "spark-warehouse").as_uri(),
            "spark.task.maxDirectResultSize": "128m",  # larger results are stored, and copied once more
            "spark.ui.enabled": "false",
        }
    if _is_local(settings) and _mebibytes({**options, **given}["spark.driver.memory"]) <= _PAGES:
        options["spark.buffer.pageSize"] = "1m"  # else joins, sorts and groupings of one task take 16 MB each of 1 GB
    if java_options:
        defaults = given.pop("spark.driver.defaultJavaOptions", "")
        options["spark.driver.defaultJavaOptions"] = f"{java_options} {defaults}".strip()
    return {**options, **given, **RELIED_ON}


def _master(settings: SparkSettings) -> str | None:
    """Return the master to request; None if spark-submit has chosen one."""
    if settings.master is not None:
        return settings.master
    return dict(settings.conf).get("spark.master", None if _GATEWAY in os.environ else "local[*]")


def _is_local(settings: SparkSettings) -> bool:
    return (_master(settings) or "").startswith("local")


def _build(settings: SparkSettings, *, java_options: str) -> SparkSession:
    options = session_options(settings, java_options)
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        with _submitted(options):
            SparkContext._ensure_initialized()
        cache_lookups(SparkContext._jvm)
        return builder.getOrCreate()
    except Exception as error:  # PySpark and Py4J errors have no common class
        raise SparkUnavailable(
            f"Spark did not start: {_first_line(error)}",
            hint="Spark's own messages are above; check JAVA_HOME, the master and Spark's settings",
        ) from error


_STACK = "8m"
"""Stack of Java's threads: the change of a view of sixty joins is an SQL text that Spark's parser nests too deeply for
the default of 1 MB as long as its code is interpreted. Only what is used of a stack takes memory."""


def _java_options() -> str:
    log = Path(__file__).parent / "log4j2.properties"
    return f"-Xss{_STACK} -Dlog4j2.configurationFile={shlex.quote(log.as_uri())}"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while Spark's launcher reads them; later child processes do not inherit them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _submitted(options: Mapping[str, str]) -> Iterator[None]:
    """Pass options to PySpark's Java process in a file, because any user can read its command line."""
    with tempfile.TemporaryDirectory(prefix="kilonova-spark-") as folder:  # readable by this user only
        file = Path(folder) / "options"
        file.write_text(properties(options), encoding="utf-8")
        given = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        rest = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        with _environment({"PYSPARK_SUBMIT_ARGS": f"{given} {rest}"}):
            yield


def properties(options: Mapping[str, str]) -> str:
    """Format options as a Java properties file, read as UTF-8."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in options.items())


def _escaped(text: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
        sign: f"\\{sign}" for sign in " =:#!"
    }
    return "".join(escapes.get(sign, sign) for sign in text)


def _mebibytes(memory: str) -> float:
    """Return a size of memory as Spark reads it, such as `2g`.

    >>> _mebibytes("2g"), _mebibytes("600m"), _mebibytes("1073741824"), _mebibytes("much")
    (2048.0, 600.0, 1024.0, inf)
    """
    try:
        return int(memory) / (1 << 20) if memory.isdecimal() else float(_parse_memory(memory.removesuffix("b")))
    except (ValueError, IndexError):  # Spark says what is wrong with it
        return math.inf


def _driver_memory() -> int:
    """Return half of this process's memory limit, from 1 to 8 GiB: in a local session the driver does all the work."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # not in a container, or one without a limit ("max")
        limit = physical
    return max(1 << 30, min(8 << 30, min(physical, limit) // 2))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or lines or [type(error).__name__])[0]
