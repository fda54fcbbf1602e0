import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from kilonova.jvm import cds_archive
from kilonova.jvm.runtime import Java, find_java, first_usable, java_environment, script, shim
from kilonova.warehouse.session import SparkSettings, session_options, wait_for_java


def fake_java(home: Path, release: str) -> Java:
    """A Java that prints its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{release}"\n')
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done\n')
    program.chmod(0o755)
    (home / "bin" / "jps").touch()
    return Java(home=home.resolve(), release=release)


def without_java(directory: Path) -> str:
    """A PATH with all that the PATH has except a Java."""
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(directory)) is None
    return str(directory)


def test_java_home_takes_precedence_over_path(tmp_path):
    named, on_path = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(named.home), "PATH": str(on_path.home / "bin")}
    assert find_java(environ) == named
    assert find_java({"PATH": environ["PATH"]}) == on_path


def test_a_java_that_is_too_old_or_missing_is_passed_over(tmp_path):
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old.home), "PATH": str(new.home / "bin")}) == new
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(new.home / "bin")}) == new
    assert first_usable([old]) is None


def test_a_link_on_path_leads_to_the_real_java(tmp_path):
    java = fake_java(tmp_path / "java", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java.home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == java


def test_without_a_java_the_packaged_one_serves():
    assert find_java({"PATH": ""}).feature >= 21


@pytest.mark.parametrize(
    "spelling", [["--add-modules=jdk.incubator.vector"], ["--add-modules", "jdk.incubator.vector"]]
)
def test_the_shim_drops_the_module_and_nothing_else(tmp_path, spelling):
    home = shim(fake_java(tmp_path / "a java", "25.0.2"), tmp_path / "cache")
    kept = ["-cp", "a b:*", "", "--add-modules", "java.sql", "--add-modules=java.xml", "$x", "--add-modules"]
    arguments = [*kept[:3], *spelling, *kept[3:]]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == kept


def test_a_package_that_is_gone_is_not_opened(tmp_path):
    argument = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    assert argument in script(Java(home=tmp_path, release="25.0.2"))
    assert argument not in script(Java(home=tmp_path, release="17.0.15"))


def test_the_shim_holds_what_the_java_holds_and_is_made_once(tmp_path):
    java = fake_java(tmp_path / "java", "17.0.2")
    home = shim(java, tmp_path / "cache")
    assert sorted(path.name for path in home.iterdir()) == ["bin", "lib", "release"]
    assert (home / "bin" / "jps").resolve() == java.home / "bin" / "jps"
    assert shim(java, tmp_path / "cache") == home
    assert [path.name for path in home.parent.iterdir()] == [home.name], "no drafts are left behind"


def test_another_java_gets_another_shim_and_archive(tmp_path):
    one, two = (fake_java(tmp_path / name, "17.0.2") for name in ("one", "two"))
    assert shim(one, tmp_path) != shim(two, tmp_path)
    assert cds_archive.archive_path(one, tmp_path) != cds_archive.archive_path(two, tmp_path)


def test_daemons_can_be_given_the_shim(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = fake_java(tmp_path / "java", "17.0.2")
    environ = java_environment({"JAVA_HOME": str(java.home), "PATH": "", "OTHER": "kept"})
    assert environ["OTHER"] == "kept"
    assert str(java.home) in (Path(environ["JAVA_HOME"]) / "bin" / "java").read_text()


def test_settings_of_the_user_override_those_of_kilonova():
    given = (("spark.sql.shuffle.partitions", "3"), ("spark.driver.defaultJavaOptions", "-Da=1"))
    options = session_options(SparkSettings(master="local[2]", conf=given), "-Db=2")
    assert options["spark.sql.shuffle.partitions"] == "3"
    assert options["spark.driver.defaultJavaOptions"] == "-Db=2 -Da=1"


def test_a_local_session_takes_small_pages_unless_its_memory_needs_large_ones():
    assert session_options(SparkSettings(master="local[2]"), "")["spark.buffer.pageSize"] == "1m"
    for memory, size in (("1g", "1m"), ("8g", "1m"), ("9g", None), ("64g", None), ("much", None)):
        given = (("spark.driver.memory", memory),)
        assert session_options(SparkSettings(master="local[2]", conf=given), "").get("spark.buffer.pageSize") == size
    assert "spark.buffer.pageSize" not in session_options(SparkSettings(master="spark://host:7077"), "")


def test_what_merges_rely_on_is_not_the_users_to_set():
    key = "spark.sql.legacy.bucketedTableScan.outputOrdering"
    assert session_options(SparkSettings(conf=((key, "false"),)), "")[key] == "true"


def test_a_cluster_keeps_its_own_memory_and_warehouse():
    options = session_options(SparkSettings(master="spark://host:7077"), "")
    assert options["spark.master"] == "spark://host:7077"
    assert not {"spark.driver.host", "spark.driver.memory", "spark.sql.warehouse.dir"} & options.keys()


def test_a_master_and_a_remote_exclude_each_other():
    with pytest.raises(ValueError, match="exclude"):
        SparkSettings(master="local[1]", remote="sc://host")


IN_A_PROCESS = """
from kilonova.errors import SparkUnavailable
from kilonova.warehouse.session import SparkSettings, open_session
{}
"""


def run_python(body: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")}
    return subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS.format(body)],
        cwd=directory,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_server_that_does_not_answer_is_named_without_its_token(tmp_path):
    said = run_python(
        "try: open_session(SparkSettings(remote='sc://127.0.0.1:1/;token=secret'))\n"
        "except SparkUnavailable as error: print(error)",
        tmp_path,
    )
    assert "sc://127.0.0.1:1: Connection refused" in said.stdout
    assert "secret" not in said.stdout + said.stderr


@pytest.mark.parametrize("url", ["http://host", "sc://", "sc://host:port", "host:15002"])
def test_a_url_of_something_else_is_refused(tmp_path, url):
    said = run_python(
        f"try: open_session(SparkSettings(remote={url!r}))\nexcept SparkUnavailable as error: print(error)",
        tmp_path,
    )
    assert "is not the URL of a Spark Connect server" in said.stdout


def test_no_archive_is_made_where_spark_has_configuration_files(tmp_path, monkeypatch):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not cds_archive.make_in_background()
    assert cds_archive.make_class_data_archive() is None


@pytest.mark.slow
def test_spark_starts_quietly_on_the_packaged_java_even_with_a_damaged_archive(tmp_path):
    java = find_java({"PATH": ""})
    cache = tmp_path / "cache" / "kilonova"
    archive = cds_archive.archive_path(java, cache)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"\0" * 1000)
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    body = """
spark, new = open_session(SparkSettings(master="local[1]"))
assert new
assert open_session(SparkSettings(master="local[2]")) == (spark, False)
java = spark._jvm.java.lang.System.getProperty("java.home")
first = spark.range(3).mapInPandas(lambda frames: frames, "id long").count()
nested = spark.sql("SELECT " + "(" * 400 + "1" + ")" * 400).first()[0]
spark.stop()
print(java, first, nested, sep="|")
"""
    said = run_python(
        body, tmp_path / "work", PATH=without_java(tmp_path / "bin"), XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"{java.home}|3|1\n"
    assert said.stderr == ""
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_a_java_that_ends_at_once_is_an_error_with_a_hint(tmp_path):
    fake_java(tmp_path / "java", "17.0.2")
    said = run_python(
        "try: open_session(SparkSettings(master='local[1]'))\nexcept SparkUnavailable as error: print(error)",
        tmp_path,
        JAVA_HOME=str(tmp_path / "java"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert "Spark did not start" in said.stdout
    assert "JAVA_HOME" in said.stdout


def test_options_are_not_on_a_command_line_that_others_can_read():
    value = "a \\secret=x:y#é\n z"
    code = f"""
import psutil
from pyspark.core.context import SparkContext
from kilonova.warehouse.session import SparkSettings, open_session
conf = (("spark.hadoop.fs.own.key", {value!r}), ("spark.driver.memory", "600m"))
session, _ = open_session(SparkSettings(master="local[1]", conf=conf))
words = psutil.Process(SparkContext._gateway.proc.pid).cmdline()
assert not any("secret" in word for word in words), words
assert "-Xmx600m" in words
assert session.sparkContext._jsc.hadoopConfiguration().get("fs.own.key") == {value!r}
assert session.sparkContext._jvm.System.getProperty("spark.hadoop.fs.own.key") == {value!r}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_java_that_is_stopped_is_waited_for(spark: SparkSession) -> None:
    process = SparkContext._gateway.proc
    answered = threading.Event()

    def ask() -> None:
        wait_for_java()
        answered.set()

    wait_for_java()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        threading.Thread(target=ask, daemon=True).start()
        assert not answered.wait(0.5)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert answered.wait(60)
