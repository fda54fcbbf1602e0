"""A year of flights from New York: lookups, a join kept up to date, counts, and a report.

    airlines, airports ──┬───────────────────────────┐
    weather ──┐          │                           │
    flights ──┼─ enriched ──────────────── monthly_report
    planes  ──┘
    flights, airports ── plane_positions
    flights, planes ──── flight_planes ─── seat_miles
    flights ──────────── route_counts

Flights and weather only ever arrive; planes are registered, refitted and retired. A task that reads `New`
sees each flight once. The annotations say the rest: which input is read whole, which by its changes, and
whether the result replaces what was there (`Base`) or adds to it (`DeltaQuery`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kilonova as kn

wf = kn.Workflow("flights")


# What arrives. A channel without a key only grows; with a key, the latest row per key counts.

wf.channel("airlines", "carrier string, name string", key="carrier")

wf.channel(
    "airports",
    "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
    key="faa",
)

wf.channel(
    "planes",
    """tailnum string, year int, type string, manufacturer string, model string, engines int, seats int,
    speed int, engine string, retired boolean""",
    key="tailnum",
)

wf.channel(
    "weather",
    """origin string, year int, month int, day int, hour int, temp double, dewp double, humid double,
    wind_dir int, wind_speed double, wind_gust double, precip double, pressure double, visib double,
    time_hour timestamp""",
    key=("origin", "time_hour"),
)

wf.channel(
    "flights",
    """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp""",
)


# Lookups: each new flight meets the planes and the weather as they are known today. A plane that is
# registered or refitted later does not touch the flights that went before.


@wf.task(
    schema="""year int, month int, day int, carrier string, flight int, tailnum string, origin string,
    dest string, dep_delay int, arr_delay int, distance int, model string, seats int, temp double,
    wind_speed double, precip double, visib double"""
)
def enriched(flights: kn.New, planes: kn.All, weather: kn.All) -> kn.Delta:
    """Each flight with the plane that flew it and the weather at its departure, where known."""
    hourly = weather.select("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
    return (
        flights.join(F.broadcast(planes.select("tailnum", "model", "seats")), "tailnum", "left")
        .join(F.broadcast(hourly), ["origin", "time_hour"], "left")
        .select(
            *("year", "month", "day", "carrier", "flight", "tailnum", "origin", "dest"),
            *("dep_delay", "arr_delay", "distance"),
            *("model", "seats", "temp", "wind_speed", "precip", "visib"),
        )
    )


@wf.task(
    schema="tailnum string, since timestamp, faa string, airport string, lat double, lon double",
    key="tailnum",
)
def plane_positions(flights: kn.New, airports: kn.All) -> kn.Delta:
    """Where each plane went last. The latest row per plane counts, so flights must arrive in order."""
    landed = flights.where("tailnum is not null and arr_time is not null")
    last = landed.groupBy("tailnum").agg(F.max(F.struct("time_hour", "sched_dep_time", "flight", "dest")).alias("last"))
    places = airports.select("faa", F.col("name").alias("airport"), "lat", "lon")
    return last.select("tailnum", F.col("last.time_hour").alias("since"), F.col("last.dest").alias("faa")).join(
        places, "faa", "left"
    )


# A join kept up to date on both sides: every flight meets every plane as it is *now*.
#
#     Δ(F ⋈ P) = ΔF ⋈ P_old  ∪  F_new ⋈ ΔP      where F_new = F_old ∪ ΔF
#
# Planes change and go, so their changes and the result carry a `_weight`: +1 for a row that comes, −1 for
# one that goes.


def with_plane(flights: DataFrame, planes: DataFrame) -> DataFrame:
    """Flights with their planes, and with the planes' `_weight` if they have one."""
    flown = flights.select(
        "year", "month", "day", "time_hour", "carrier", "flight", "tailnum", "origin", "dest", "distance"
    )
    known = planes.drop("year", "type", "engines", "speed", "retired")
    return flown.join(F.broadcast(known), "tailnum")  # planes are few, whatever Spark expects of their changes


@wf.task(
    reads={"flights_old": "flights", "planes_old": "planes", "planes_changed": "planes"},
    schema="""year int, month int, day int, time_hour timestamp, carrier string, flight int, tailnum string,
    origin string, dest string, distance int, manufacturer string, model string, seats int, engine string""",
    encoding="changes",
)
def flight_planes(flights: kn.New, flights_old: kn.Old, planes_changed: kn.Changes, planes_old: kn.Old) -> kn.Delta:
    """Each flight with the plane that flew it, as the registry has it today; without, if it has none."""
    arrived = with_plane(flights, planes_old).withColumn("_weight", F.lit(1).cast("bigint"))
    revised = with_plane(flights_old.unionByName(flights), planes_changed)
    return arrived.unionByName(revised)


@flight_planes.variant
def flight_planes_batch(flights: kn.All, planes: kn.All) -> kn.Base:
    """The same from scratch, for when so much has changed that starting over is cheaper."""
    return with_plane(flights, planes)


# Sums: the deltas say how much to add per key, and are added up when somebody looks.


@wf.task(
    schema="carrier string, year int, month int, flights bigint, seat_miles bigint",
    key=("carrier", "year", "month"),
    encoding=kn.increment("flights", "seat_miles"),
)
def seat_miles(flight_planes: kn.Changes) -> kn.Delta:
    """Seats times miles flown, the capacity an airline offers; a refit changes it in hindsight."""
    weight = F.col("_weight")
    return flight_planes.groupBy("carrier", "year", "month").agg(
        F.sum(weight).alias("flights"),
        F.sum(weight * F.col("seats") * F.col("distance")).alias("seat_miles"),
    )


@wf.task(
    schema="""carrier string, origin string, dest string, flights bigint, cancelled bigint,
    arrived bigint, arr_delay bigint""",
    key=("carrier", "origin", "dest"),
    encoding=kn.increment("flights", "cancelled", "arrived", "arr_delay"),
)
def route_counts(flights: kn.New) -> kn.Delta:
    """Flights, cancellations and minutes of delay per route; `arr_delay / arrived` is the mean delay."""
    return flights.groupBy("carrier", "origin", "dest").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
        F.count("arr_delay").alias("arrived"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).cast("bigint").alias("arr_delay"),
    )


# A report from scratch each time: medians do not add up.


@wf.task(
    schema="""year int, month int, carrier string, airline string, flights bigint, cancelled bigint,
    in_rain bigint, median_delay double, worst_tenth double""",
    key=("year", "month", "carrier"),
)
def monthly_report(enriched: kn.All, airlines: kn.All) -> kn.Base:
    """Per month and airline: flights, cancellations, departures in rain, and how late they arrived."""
    names = airlines.select("carrier", F.col("name").alias("airline"))
    return (
        enriched.groupBy("year", "month", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.count_if(F.col("precip") > 0).alias("in_rain"),
            F.percentile("arr_delay", 0.5).alias("median_delay"),
            F.percentile("arr_delay", 0.9).alias("worst_tenth"),
        )
        .join(names, "carrier", "left")
    )
