"""The examples' task functions, called with DataFrames, against pandas or the known truth."""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from examples.flights import feed as flights_feed
from examples.flights import workflow as flights
from examples.news import feed as news_feed
from examples.news import workflow as news
from tests.seeds import SEED

Bag = Counter[Row]

FLIGHTS = "year int, month int, day int, time_hour timestamp, carrier string, flight int, tailnum string, "
FLIGHTS += "origin string, dest string, distance int"
PLANES = "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, "
PLANES += "speed int, engine string, retired boolean"
CARRIERS, PLACES, MODELS = ("AA", "DL", "UA"), ("EWR", "JFK", "LGA"), ("A320", "B737", "MD-88")


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", 2)
    # Far from both UTC and New York, so that a mix-up of local time and instants would show.
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    return session


@pytest.fixture(scope="module")
def january(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """What had arrived after three days, per channel."""
    folder = tmp_path_factory.mktemp("january")
    tables: dict[str, list[str]] = {}
    for batch in flights_feed.batches("day", last=date(2013, 1, 3)):
        for channel, path in batch.write(folder).items():
            tables.setdefault(channel, []).append(str(path))
    return {channel: spark.read.parquet(*paths) for channel, paths in tables.items()}


def bag(rows: DataFrame) -> Bag:
    return Counter(rows.collect())


def applied(relation: Bag, changes: DataFrame) -> Bag:
    """Merge a strong delta, which must not take away what is not there."""
    result = Counter(relation)
    for row in changes.collect():
        values = row.asDict()
        weight = values.pop("_weight")
        result[Row(**values)] += weight
    assert min(result.values(), default=0) >= 0
    return +result


def added(totals: Counter[tuple[object, str]], increments: DataFrame, key: Iterable[str]) -> None:
    """Merge a weak delta into totals per key and measure."""
    key = tuple(key)
    for row in increments.collect():
        for name, amount in row.asDict().items():
            if name not in key:
                totals[tuple(row[part] for part in key), name] += amount


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_files_hold_what_parquet_files_hold(spark: SparkSession, tmp_path: Path, format: str) -> None:
    (batch,) = flights_feed.batches("day", first=date(2013, 2, 1), last=date(2013, 2, 1))
    typed = batch.write(tmp_path)
    for channel, path in batch.write(tmp_path, format).items():  # type: ignore[arg-type]
        expected = spark.read.parquet(str(typed[channel]))
        found = spark.read.schema(expected.schema).format(format).option("header", True).load(str(path))
        assert bag(found) == bag(expected), channel


def test_days_add_up_to_months() -> None:
    (month,) = flights_feed.batches("month", first=date(2013, 2, 1), last=date(2013, 2, 28))
    days = list(flights_feed.batches("day", first=date(2013, 2, 1), last=date(2013, 2, 28)))
    for channel, table in month.tables.items():
        rows = [row for day in days if channel in day.tables for row in day.tables[channel].to_pylist()]
        assert rows == table.to_pylist(), channel


def test_the_changes_of_planes_lead_from_one_month_to_any_later_one() -> None:
    registry: dict[str, dict[str, object]] = {}
    seen: Counter[str] = Counter()
    for month in range(1, 13):
        changes = flights_feed.plane_changes(month, since=month - 1 or None).to_dict("records")
        for row in changes:
            deleted, known = row.pop("_deleted"), registry.get(row["tailnum"])
            row = {name: None if pd.isna(value) else value for name, value in row.items()}
            seen["deleted" if deleted else "new" if known is None else "same" if known == row else "changed"] += 1
            if deleted:
                del registry[row["tailnum"]]
            else:
                registry[row["tailnum"]] = row
        fleet = flights_feed.fleet(month).rename_axis("tailnum").reset_index().to_dict("records")
        assert registry == {
            row["tailnum"]: {name: None if pd.isna(value) else value for name, value in row.items()} for row in fleet
        }
    assert all(seen[kind] > 100 for kind in ("new", "changed", "same", "deleted")), seen


def test_a_new_flight_meets_its_plane_and_its_weather(january: dict[str, DataFrame]) -> None:
    planes, weather = january["planes"].drop("_deleted"), january["weather"]
    found = flights.enriched(january["flights"], planes, weather).toPandas()
    expected = (
        january["flights"]
        .toPandas()
        .merge(planes.toPandas()[["tailnum", "model", "seats"]], "left", "tailnum")
        .merge(
            weather.toPandas()[["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]],
            "left",
            ["origin", "time_hour"],
        )
    )
    order = ["month", "day", "carrier", "flight", "origin"]
    pd.testing.assert_frame_equal(
        found.fillna(float("nan")).sort_values(order, ignore_index=True),
        expected[found.columns].fillna(float("nan")).sort_values(order, ignore_index=True),
        check_dtype=False,
    )
    assert found["seats"].notna().any()
    assert found["temp"].notna().any()


def test_the_last_landing_says_where_a_plane_is(january: dict[str, DataFrame]) -> None:
    whole = flights.plane_positions(january["flights"], january["airports"]).toPandas()
    merged = pd.concat(
        flights.plane_positions(january["flights"].where(F.col("day") == day), january["airports"]).toPandas()
        for day in (1, 2, 3)
    ).drop_duplicates("tailnum", keep="last")
    pd.testing.assert_frame_equal(
        merged.sort_values("tailnum", ignore_index=True), whole.sort_values("tailnum", ignore_index=True)
    )
    landed = january["flights"].toPandas().dropna(subset=["tailnum", "arr_time"])
    landed = landed.sort_values(["time_hour", "sched_dep_time", "flight"]).drop_duplicates("tailnum", keep="last")
    assert dict(zip(whole["tailnum"], whole["faa"], strict=True)) == dict(
        zip(landed["tailnum"], landed["dest"], strict=True)
    )


def some_flight(rng: random.Random, day: int, tailnums: list[str | None]) -> tuple[object, ...]:
    route = rng.choice(PLACES), rng.choice(PLACES), rng.randint(1, 3) * 100
    number, month = rng.randint(1, 3), rng.randint(1, 2)
    return (2013, month, day, None, rng.choice(CARRIERS), number, rng.choice(tailnums), *route)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_flights_and_planes_stay_joined_whatever_changes(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    flown: list[tuple[object, ...]] = []
    registry: dict[str, tuple[object, ...]] = {}
    joined: Bag = Counter()
    miles: Counter[tuple[object, str]] = Counter()
    schema = StructType.fromDDL
    for day in (1, 2, 3):
        tailnums: list[str | None] = [*(f"N{number}" for number in range(6)), None]
        arrived = [some_flight(rng, day, tailnums) for _ in range(rng.choice((0, 12)) if day > 1 else 12)]
        now = {
            tailnum: (
                tailnum,
                None,
                None,
                None,
                rng.choice(MODELS),
                2,
                rng.choice((100, 150)),
                None,
                None,
                False,
            )
            for tailnum in tailnums
            if tailnum and rng.random() < 0.6
        }
        changes = [(*row, -1) for tailnum, row in registry.items() if now.get(tailnum) != row]
        changes += [(*row, 1) for tailnum, row in now.items() if registry.get(tailnum) != row]
        delta = flights.flight_planes(
            flights=spark.createDataFrame(arrived, schema(FLIGHTS)),
            flights_old=spark.createDataFrame(flown, schema(FLIGHTS)),
            planes_changed=spark.createDataFrame(changes, schema(PLANES + ", _weight bigint")),
            planes_old=spark.createDataFrame(list(registry.values()), schema(PLANES)),
        )
        joined = applied(joined, delta)
        added(miles, flights.seat_miles(delta), ("carrier", "year", "month"))
        flown, registry = flown + arrived, now

        whole = flights.flight_planes_batch(
            spark.createDataFrame(flown, schema(FLIGHTS)),
            spark.createDataFrame(list(registry.values()), schema(PLANES)),
        )
        seats = {tailnum: row[6] for tailnum, row in registry.items()}
        assert joined == bag(whole)
        assert joined.total() == sum(row[6] in registry for row in flown)
        expected: Counter[tuple[object, str]] = Counter()
        for year, month, _, _, carrier, _, tailnum, _, _, distance in flown:
            if tailnum in seats:
                expected[(carrier, year, month), "flights"] += 1
                expected[(carrier, year, month), "seat_miles"] += seats[tailnum] * distance  # type: ignore
        assert {k: v for k, v in miles.items() if v} == dict(expected)


def test_route_counts_add_up_to_the_counts_of_all_flights(january: dict[str, DataFrame]) -> None:
    totals: Counter[tuple[object, str]] = Counter()
    for day in (1, 2, 3):
        added(
            totals,
            flights.route_counts(january["flights"].where(F.col("day") == day)),
            ("carrier", "origin", "dest"),
        )
    routes = january["flights"].toPandas().groupby(["carrier", "origin", "dest"])
    expected = pd.DataFrame(
        {
            "flights": routes.size(),
            "cancelled": routes["dep_time"].agg(lambda times: times.isna().sum()),
            "arrived": routes["arr_delay"].count(),
            "arr_delay": routes["arr_delay"].sum(),
        }
    )
    assert totals == {
        (route, name): amount for name in expected for route, amount in expected[name].astype(int).items()
    }


def test_the_monthly_report_is_about_all_flights(january: dict[str, DataFrame]) -> None:
    enriched = flights.enriched(january["flights"], january["planes"].drop("_deleted"), january["weather"])
    report = flights.monthly_report(enriched, january["airlines"]).toPandas().set_index("carrier")
    carriers = january["flights"].toPandas().groupby("carrier")
    assert report["flights"].to_dict() == carriers.size().to_dict()
    assert report["median_delay"].to_dict() == carriers["arr_delay"].median().to_dict()
    assert report["airline"]["UA"] == "United Air Lines Inc."


def test_exactly_the_first_article_of_each_story_is_unique(spark: SparkSession, tmp_path: Path) -> None:
    feed = news_feed.generate(seed=1, batches=3, articles=40, sites=5, copies=0.4)
    batches = [
        spark.read.schema("id bigint, site string, published timestamp, body string").json(str(path))
        for path in feed.write(tmp_path)
    ]
    templates = news.site_templates(batches[0]).localCheckpoint()
    hashes = spark.createDataFrame([], "hash bigint, id bigint")
    found: list[int] = []
    for number, articles in enumerate(batches, start=1):
        unique, unseen = news.dedupe(news.shingled(news.tagged(articles, templates)), hashes)
        found += [row.id for row in unique.collect()]
        feed.check(found, after=number)
        hashes = hashes.union(unseen).localCheckpoint()
    assert len(found) < 3 * 40


def test_templates_are_distinguished_from_content(spark: SparkSession) -> None:
    articles = spark.createDataFrame(
        [
            (1, "a", None, "Home\nThe fox.\nBye"),
            (2, "a", None, "Home\nThe hen.\nBye"),
            (3, "a", None, "Home\nBye\nBye"),
            (4, "b", None, "The fox."),
        ],
        "id bigint, site string, published timestamp, body string",
    )
    templates = news.site_templates(articles)
    assert bag(templates) == Counter([Row(site="a", line="Home"), Row(site="a", line="Bye")])
    taken = {row.id: (row.main, row.template) for row in news.tagged(articles, templates).collect()}
    assert taken == {
        1: ("The fox.", "Home\nBye"),
        2: ("The hen.", "Home\nBye"),
        3: ("", "Home\nBye\nBye"),
        4: ("The fox.", ""),
    }


def test_the_digest_sees_words_not_their_looks(spark: SparkSession) -> None:
    texts = [
        "the quick brown fox jumps",
        "The quick,\nbrown FOX -- jumps!",
        "the quick brown fox sleeps",
        "the",
        "",
    ]
    rows = [(number, "a", None, text, "") for number, text in enumerate(texts)]
    tagged = spark.createDataFrame(rows, "id bigint, site string, published timestamp, main string, template string")
    digests = [row.hash for row in news.shingled(tagged).orderBy("id").collect()]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4
