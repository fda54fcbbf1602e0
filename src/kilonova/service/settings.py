"""Settings from `kilonova.toml`, the environment (`KILONOVA_…`) and the caller; later ones override earlier ones."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from kilonova.errors import SettingsError, closest_name

FILE = "kilonova.toml"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SparkSection(_Section):
    """Spark to use: a `master` or a Connect `remote`, and `conf` that overrides Kilonova's own."""

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)
    class_data_archive: bool = True
    analyse: bool = True


class SizesSection(_Section):
    """Size thresholds of the physical strategies, in bytes; see `kilonova.schedule.layout.LayoutThresholds`."""

    bucketing_min: int = Field(default=32 << 20, gt=0)
    bucket_size: int = Field(default=64 << 20, gt=0)
    broadcast_max: int = Field(default=8 << 20, ge=0)
    single_task_max: int = Field(default=8 << 20, ge=0)
    full_compare_max: int = Field(default=16 << 20, ge=0)
    local_check_max: int = Field(default=256 << 20, ge=0)
    lookup_min: int = Field(default=1 << 20, ge=0)


class RetrySection(_Section):
    """Retries of transient failures."""

    attempts: int = Field(default=3, ge=1)
    wait: float = Field(default=1.0, ge=0)


_RATE = r"^[1-9]\d* per (second|minute|hour|day)$"


class ScanSection(_Section):
    """Limits of one block from a watched directory: the maximum number of files, and of their bytes."""

    max_files: int = Field(default=1000, ge=1)
    max_bytes: int = Field(default=8 << 30, gt=0)


class ServeSection(_Section):
    """Settings of a server.

    Attributes:
        workers: number of concurrent runs, each in its own process.
        extra_worker: whether one more process is started for uploads, sent code and pages of rows that would wait while
            all workers are busy; it ends when it has not been needed for a minute.
        per_workflow: maximum number of concurrent runs of a workflow, on all servers; unlimited if omitted.
        run_timeout: maximum duration of a run in seconds, before its process is terminated; a day if omitted,
            unlimited if `inf`.
        python_memory_mb: maximum memory of a run's Python process in megabytes, without Spark; unlimited if omitted.
        lease: seconds without a heartbeat after which a server counts as dead.
        shutdown_grace: seconds that runs have to finish when the server is shut down.
        stuck_after: seconds that a firing may be due before it is reported as stuck.
        maintenance_interval: seconds between checks for channels to compact and for garbage, only while the server is
            idle. Never if 0.
        verify: days after which the content of a block that was written or verified is verified again, by idle servers
            when they collect garbage. Never if 0.
        host: the address on which it listens; other machines are admitted only with tokens.
        port: the port on which it listens; 0 takes a free one.
        max_upload_mb: maximum size of an upload in megabytes.
        rate_limit: rate limit of modifying requests per token or address.
        read_rate_limit: rate limit of read-only requests per token or address.
        failed_auth_limit: rate limit of invalid tokens per address; valid ones are accepted even beyond it.
        max_connections: maximum number of concurrent connections to the API.
        header_timeout: seconds that the head of a request may take, within a factor of two; see
            `kilonova.api.connections`.
        sources: the directories and URLs from which HTTP clients may ingest files, recursively.
        formats: Spark formats that HTTP clients may use besides Parquet, ORC, CSV and JSON.
        webhooks: hosts allowed in webhooks although they are this machine or on its link, such as localhost.
        proxies: the addresses or networks of trusted proxies, whose `X-Forwarded-For` header names the client.
        load_timeout: maximum seconds for loading the code of an uploaded workflow.
    """

    workers: int = Field(default=2, ge=1)
    extra_worker: bool = True
    per_workflow: int | None = Field(default=None, ge=1)
    run_timeout: float = Field(default=86_400, gt=0)
    python_memory_mb: int | None = Field(default=None, gt=0)
    lease: float = Field(default=10.0, gt=0)
    shutdown_grace: float = Field(default=60.0, ge=0)
    stuck_after: float = Field(default=3600.0, gt=0)
    maintenance_interval: float = Field(default=60.0, ge=0)
    verify: float = Field(default=30.0, ge=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8620, ge=0, le=65535)
    max_upload_mb: int = Field(default=100, gt=0)
    rate_limit: str = Field(default="600 per minute", pattern=_RATE)
    read_rate_limit: str = Field(default="6000 per minute", pattern=_RATE)
    failed_auth_limit: str = Field(default="10 per minute", pattern=_RATE)
    max_connections: int = Field(default=400, ge=1)
    header_timeout: float = Field(default=10.0, gt=0)
    sources: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    load_timeout: int = Field(default=60, gt=0)


class LineageSection(_Section):
    """Destination of OpenLineage events.

    Attributes:
        transport: the transport configuration of the OpenLineage client: a `type`, and its options.
        namespace: the namespace of the jobs.
    """

    transport: dict[str, Any]
    namespace: str = Field(default="kilonova", min_length=1)


class Settings(BaseSettings):
    """Settings of a project.

    Attributes:
        catalog: the metadata database; an SQLAlchemy URL, or a path for SQLite.
        warehouse: the location of blocks; a path or a URL that both Spark and fsspec can read.
        run_lease: seconds without a heartbeat after which a run may be taken over.
        log_retention_days: retention of run logs, in days.
        history_retention_days: retention of events, ended firings, stopped servers and idempotency keys of ingests,
            in days; the keys are kept for at least a week.
        verify: verification of blocks when they are read: file names and `sizes`, or `checksums` as well.
        provenance: the provenance references that retain blocks, `logical` or `physical`; `all` retains every block.
        incompatible_schemas: what `apply` does about changes after which a channel lacks columns that each logic
            version of a task requires: `alert` records an event, `refuse` rejects them.
        spark: the Spark to use.
        retry: retries of transient failures.
        sizes: size thresholds of the physical strategies.
        scan: limits of one block from a watched directory.
        serve: settings of a server.
        lineage: destination of OpenLineage events; none are sent if omitted.
    """

    model_config = SettingsConfigDict(
        env_prefix="KILONOVA_", env_nested_delimiter="__", extra="forbid", toml_file=FILE, frozen=True
    )
    catalog: str = ".kilonova/catalog.db"
    warehouse: str = ".kilonova/warehouse"
    run_lease: float = Field(default=30.0, gt=0)
    log_retention_days: int = Field(default=90, ge=1)
    history_retention_days: float = Field(default=90.0, gt=0)
    verify: str = Field(default="sizes", pattern="^(sizes|checksums)$")
    provenance: str = Field(default="logical", pattern="^(logical|physical|all)$")
    incompatible_schemas: str = Field(default="alert", pattern="^(alert|refuse)$")
    spark: SparkSection = Field(default_factory=SparkSection)
    retry: RetrySection = Field(default_factory=RetrySection)
    sizes: SizesSection = Field(default_factory=SizesSection)
    scan: ScanSection = Field(default_factory=ScanSection)
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
        """Return the sources by precedence: the caller, the environment, the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(directory: Path, **given: Any) -> Settings:
    """Load the settings of a project directory.

    Args:
        directory: the directory of `kilonova.toml`, if there is one.
        given: settings that override all others; those that are None are ignored.

    Raises:
        SettingsError: a setting is unknown or has an invalid value.
    """
    file = directory / FILE

    class Here(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        return Here(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            hint = closest_name(str(first["loc"][-1]), _names(first["loc"][:-1]))
            raise SettingsError(f"there is no setting {name}", path=str(file), hint=hint) from None
        raise SettingsError(
            f"the setting {name} is invalid: {first['msg']}", path=str(file), hint="See the page on settings"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the file is not TOML: {error}", path=str(file), hint="Correct it at that place") from None


def _names(section: tuple[int | str, ...]) -> list[str]:
    """Return the names of the settings in a section."""
    model: type[BaseModel] = Settings
    for part in section:
        found = model.model_fields[str(part)].annotation
        model = next(each for each in (found, *get_args(found)) if isinstance(each, type))
    return list(model.model_fields)


def catalog_url(settings: Settings, directory: Path) -> str:
    """Return the catalog's URL; a plain path means SQLite, relative to the project's directory."""
    if "://" in settings.catalog:
        return settings.catalog
    return f"sqlite:///{(directory / settings.catalog).resolve()}"


def warehouse_url(settings: Settings, directory: Path) -> str:
    """Return the warehouse's URL; a plain path is relative to the project's directory."""
    return settings.warehouse if "://" in settings.warehouse else str((directory / settings.warehouse).resolve())
