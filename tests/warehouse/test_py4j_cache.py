"""Classes and static methods are looked up once in Java, fields each time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def sent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that are sent to Java, but for those that release objects of earlier tests."""
    client: Any = spark._jvm._gateway_client  # type: ignore[union-attr]
    send, commands = client.send_command, []

    def counted(command: str, *rest: Any, **more: Any) -> Any:
        if not command.startswith("m\n"):
            commands.append(command)
        return send(command, *rest, **more)

    monkeypatch.setattr(client, "send_command", counted)
    return commands


def test_a_class_and_its_methods_are_looked_up_once(spark: SparkSession, sent: list[str]) -> None:
    jvm: Any = spark._jvm
    for name in ("PythonUtils", "org.apache.spark.util.Utils", "java.lang.Math"):
        _ = getattr(jvm, name)
    _ = getattr(jvm, "java.lang.Math").max
    sent.clear()
    assert getattr(jvm, "java.lang.Math").max(2, 3) == 3
    _ = jvm.PythonUtils
    assert len(sent) == 1  # the call itself


def test_fields_and_packages_are_read_again(spark: SparkSession, sent: list[str]) -> None:
    jvm: Any = spark._jvm
    file = getattr(jvm, "java.io.File")
    for _ in range(2):
        sent.clear()
        assert file.separator == "/"
        _ = jvm.somewhere
        assert len(sent) == 2
