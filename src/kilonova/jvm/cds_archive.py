"""Class-data archive: Java classes, parsed and linked in advance, so that Spark starts faster.

Java writes such an archive when a process that was started with the option to do so exits; that process is slower,
so it should not be one that a user waits for. `make_in_background` starts it: a small session that uses the same parts
of Spark as Kilonova. The archive is stored in the user's cache directory, under a name that identifies the Java and
the Spark that it is for.

Guarantee: an archive affects only how fast Spark starts. It is created atomically, any number of processes may make
and use it, and Java ignores one that does not match. A damaged one can crash Java at its start: the caller that starts
Spark then calls `discard_archive` and tries again.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from kilonova.jvm.runtime import Java, cache_directory, find_java

KEPT = 3
"""Number of archives to keep, newest first; each takes about 200 MB."""

PATIENCE = 24 * 3600
"""Seconds to wait after a failure before trying again."""

_AOT_CACHE = 25  # the first Java that makes an AOT cache in one step, and needs no archive in addition


def archive_path(java: Java, cache: Path) -> Path:
    """Return the path of the archive for this Java and the installed Spark."""
    spark = Path(_find_spark_home())
    jars = spark / "jars"
    installed = f"{java.home}|{java.release}|{jars}|{jars.stat().st_mtime_ns if jars.is_dir() else 0}"
    suffix = "aot" if java.feature >= _AOT_CACHE else "jsa"
    name = f"spark-{pyspark.__version__}-java-{java.release}-{sha256(installed.encode()).hexdigest()[:12]}"
    return cache / "classes" / f"{name}.{suffix}"


def using_archive(java: Java, archive: Path) -> str:
    """Return the Java options to use an archive."""
    if java.feature >= _AOT_CACHE:
        return f"-XX:AOTCache={shlex.quote(str(archive))} -Xlog:aot*=off -Xlog:cds*=off"
    return f"-Xshare:auto -XX:SharedArchiveFile={shlex.quote(str(archive))} -Xlog:cds*=off"


def is_being_made(java: Java, archive: Path) -> str:
    """Return the Java options to make an archive when the process exits."""
    if java.feature >= _AOT_CACHE:
        return f"-XX:AOTCacheOutput={shlex.quote(str(archive))} -Xlog:aot*=off -Xlog:cds*=off"
    return f"-XX:ArchiveClassesAtExit={shlex.quote(str(archive))} -Xlog:cds*=off"


def discard_archive(archive: Path) -> None:
    """Remove an archive. Processes that use it continue to run."""
    archive.unlink(missing_ok=True)


def make_class_data_archive() -> Path | None:
    """Make the archive for the current Java and Spark, unless it exists, and wait for it.

    Takes about a minute. Returns:
        The archive; None if another process is making it, or if this Java or Spark's configuration does not support it.
    """
    archive = archive_path(find_java(os.environ), cache_directory())
    if archive.is_file():
        return archive
    if _is_configured():
        return None
    archive.parent.mkdir(parents=True, exist_ok=True)
    with _alone(archive) as alone:
        if not alone or _failed_lately(archive):
            return None
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=archive.parent) as directory:
            draft = Path(directory) / archive.name
            command = [sys.executable, "-m", "kilonova.warehouse.cds_session", str(draft)]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, cwd=directory, timeout=300, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            if not draft.is_file() or draft.stat().st_size == 0:
                _failure(archive).touch()
                return None
            draft.replace(archive)
        _forget_old(archive.parent)
        return archive


def make_in_background() -> bool:
    """Start making the archive in a process of low priority that outlives this one.

    Returns:
        Whether a process was started. After a failure none is started for a day.
    """
    archive = archive_path(find_java(os.environ), cache_directory())
    if archive.is_file() or _failed_lately(archive) or _is_configured():
        return False
    code = "import os, kilonova.jvm.cds_archive as c; os.nice(15); c.make_class_data_archive()"
    subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    return True


@contextmanager
def _alone(archive: Path) -> Iterator[bool]:
    """Lock the making of this archive, and yield whether that succeeded; the lock ends with its process."""
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _is_configured() -> bool:
    """Return whether Spark has a directory of configuration files: Java makes no archive with one on its class path."""
    configuration = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    return configuration.is_dir() and any(configuration.iterdir())


def _failure(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _failed_lately(archive: Path) -> bool:
    try:
        return time.time() - _failure(archive).stat().st_mtime < PATIENCE
    except FileNotFoundError:
        return False


def _forget_old(directory: Path) -> None:
    archives = [path for path in directory.iterdir() if path.suffix in (".aot", ".jsa")]
    for path in sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        discard_archive(path)
