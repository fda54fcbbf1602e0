"""Settings: from `kilonova.toml`, then the environment (`KILONOVA_…`), then what the caller says."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kilonova.errors import SettingsError

FILE = "kilonova.toml"


class SparkSection(BaseModel):
    """Which Spark to use: a `master` or a Connect `remote`, and `conf` that goes before Kilonova's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    class_data_archive: bool = True
    analyse: bool = True


class SizesSection(BaseModel):
    """Where the physical strategies change over, in bytes; see `kilonova.schedule.layout.Sizes`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bucketed: int = Field(default=32 << 20, gt=0)
    bucket: int = Field(default=64 << 20, gt=0)
    broadcast: int = Field(default=8 << 20, ge=0)
    single: int = Field(default=8 << 20, ge=0)
    compared: int = Field(default=16 << 20, ge=0)


class RetrySection(BaseModel):
    """How failures that may pass are tried again."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    attempts: int = Field(default=3, ge=1)
    wait: float = Field(default=1.0, ge=0)


_RATE = r"^[1-9]\d* per (second|minute|hour|day)$"


class GatherSection(BaseModel):
    """How much of a watched directory becomes one block at most: so many files, or bytes of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    files: int = Field(default=1000, ge=1)
    bytes: int = Field(default=8 << 30, gt=0)


class ServeSection(BaseModel):
    """How a server works.

    Attributes:
        workers: how many runs it carries out at once, each in a process of its own.
        per_workflow: how many runs a workflow may have at once, on all servers; any number if left out.
        seconds: how long a run may take before its process is ended; a day if left out, any time if it is `inf`.
        memory: how many megabytes a run's Python may take beside Spark; any amount if left out.
        lease: seconds for which a server is taken to be alive without a heartbeat.
        grace: seconds that runs have to end when the server is asked to.
        stuck: seconds for which a firing may be due before it is told of as stuck.
        tidy: seconds between looks for channels that are worth compacting, and garbage; only while nothing else is to
            be done. Never if it is 0.
        host: where it listens; other machines are let in only with tokens.
        port: the port on which it listens; 0 takes a free one.
        upload: how many megabytes an upload has at most.
        rate: how many requests that change something a token, or an address, may make.
        reads: how many requests that change nothing a token, or an address, may make.
        guesses: how many wrong tokens an address may send until it is told to wait; right ones are let in even then.
        connections: how many connections there may be to the API at once.
        arrival: seconds that the head of a request may take, within a factor of two; see
            `kilonova.server.connections`.
        sources: the directories and URLs whose files those who ask by HTTP may have read, with all below them.
        formats: formats of Spark's that they may name beside Parquet, ORC, CSV and JSON.
        webhooks: hosts that webhooks may name though they are this machine or on its link, such as localhost.
        proxies: the addresses or networks whose word is taken for who asks, by `X-Forwarded-For`.
        loading: how many seconds the code of a workflow that is sent may take to be loaded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    workers: int = Field(default=2, ge=1)
    per_workflow: int | None = Field(default=None, ge=1)
    seconds: float = Field(default=86_400, gt=0)
    memory: int | None = Field(default=None, gt=0)
    lease: float = Field(default=10.0, gt=0)
    grace: float = Field(default=60.0, ge=0)
    stuck: float = Field(default=3600.0, gt=0)
    tidy: float = Field(default=60.0, ge=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8620, ge=0, le=65535)
    upload: int = Field(default=100, gt=0)
    rate: str = Field(default="600 per minute", pattern=_RATE)
    reads: str = Field(default="6000 per minute", pattern=_RATE)
    guesses: str = Field(default="10 per minute", pattern=_RATE)
    connections: int = Field(default=400, ge=1)
    arrival: float = Field(default=10.0, gt=0)
    sources: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    loading: int = Field(default=60, gt=0)


class LineageSection(BaseModel):
    """Where OpenLineage events go.

    Attributes:
        transport: what the OpenLineage client is given as its transport: a `type`, and what belongs to that.
        namespace: the namespace of the jobs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    transport: dict[str, Any]
    namespace: str = Field(default="kilonova", min_length=1)


class Settings(BaseSettings):
    """The settings of a project.

    Attributes:
        catalog: the metadata database; an SQLAlchemy URL, or a path for SQLite.
        warehouse: where blocks live; a path or a URL that Spark and fsspec share.
        lease: seconds for which a run is safe from being taken over without a heartbeat.
        logs: days for which the logs of runs are kept.
        history: days for which servers keep events, firings that have ended, servers that have stopped and, for a week
            at least, keys of ingests.
        verify: what is compared with what was written when a block is read: names and `sizes`, or `checksums` as well.
        provenance: which provenance references hold blocks back from collection, logical or physical.
        spark: which Spark to use.
        retry: how failures that may pass are tried again.
        sizes: where the physical strategies change over.
        gather: how much of a watched directory becomes one block.
        serve: how a server works.
        lineage: where OpenLineage events go; nowhere if left out.
    """

    model_config = SettingsConfigDict(
        env_prefix="KILONOVA_", env_nested_delimiter="__", extra="forbid", toml_file=FILE, frozen=True
    )
    catalog: str = ".kilonova/catalog.db"
    warehouse: str = ".kilonova/warehouse"
    lease: float = Field(default=30.0, gt=0)
    logs: int = Field(default=90, ge=1)
    history: float = Field(default=90.0, gt=0)
    verify: str = Field(default="sizes", pattern="^(sizes|checksums)$")
    provenance: str = Field(default="logical", pattern="^(logical|physical)$")
    spark: SparkSection = Field(default_factory=SparkSection)
    retry: RetrySection = Field(default_factory=RetrySection)
    sizes: SizesSection = Field(default_factory=SizesSection)
    gather: GatherSection = Field(default_factory=GatherSection)
    serve: ServeSection = Field(default_factory=ServeSection)
    lineage: LineageSection | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What the caller says goes before the environment, and that before the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(directory: Path, **given: Any) -> Settings:
    """The settings that hold in a directory.

    Args:
        directory: where `kilonova.toml` is, if there is one.
        given: settings that go before all others; None ones are left out.

    Raises:
        SettingsError: a setting is unknown or has a value that cannot be.
    """
    file = directory / FILE

    class Here(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        return Here(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise SettingsError(
            f"the setting {name} is wrong: {first['msg']}", path=str(file), hint="See the page on settings"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the file is not TOML: {error}", path=str(file)) from None


def catalog_url(settings: Settings, directory: Path) -> str:
    """The catalog's URL; a plain path means SQLite, relative to the project's directory."""
    if "://" in settings.catalog:
        return settings.catalog
    return f"sqlite:///{(directory / settings.catalog).resolve()}"


def warehouse_url(settings: Settings, directory: Path) -> str:
    """The warehouse's URL; a plain path is relative to the project's directory."""
    return settings.warehouse if "://" in settings.warehouse else str((directory / settings.warehouse).resolve())
