"""A workflow of eleven small tasks of which little changes, against bare Spark that computes its outputs anew."""

from __future__ import annotations

import itertools
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kilonova as kn
from bench.measure import Timings, interleaved
from bench.report import Goal, Report, Scale
from bench.sandbox import sandbox, write
from kilonova.service.project import Project

PAGES = "id bigint, site string, page string"
SITES = "site string, country string, rate decimal(6,4)"
FIELDS = "id bigint, site string, name string, category string, price decimal(10,2)"
PRICED = "id bigint, site string, name string, category string, euros decimal(10,2)"

ROWS, CHANGED = 500, 20

VIEWS = {
    "cheap": "SELECT id, name, euros FROM priced WHERE euros < 50",
    "per_site": "SELECT site, count(*) AS offers, sum(euros) AS total, avg(euros) AS mean FROM priced GROUP BY site",
    "per_category": "SELECT category, count(*) AS offers, max(euros) AS most FROM priced GROUP BY category",
    "by_country": "SELECT s.country, count(*) AS offers, sum(p.euros) AS total FROM priced p JOIN sites s"
    " ON p.site = s.site GROUP BY s.country",
    "unique_offers": "SELECT id, site, name, category, euros FROM (SELECT *, row_number() OVER"
    " (PARTITION BY name ORDER BY euros, id) AS place FROM priced) WHERE place = 1",
    "best": "SELECT category, id, name, euros, place FROM (SELECT *, rank() OVER"
    " (PARTITION BY category ORDER BY euros) AS place FROM unique_offers) WHERE place <= 3",
    "located": "SELECT u.id, u.name, u.euros, s.country FROM unique_offers u JOIN sites s ON u.site = s.site",
}


def fields(pages: kn.New) -> kn.Delta:
    """The fields that stand in a page."""
    names = ("name", "category", "price")
    found = (F.regexp_extract("page", f"{name}=([^;]*);", 1).alias(name) for name in names)
    return pages.select("id", "site", *found).withColumn("price", F.expr("CAST(price AS decimal(10,2))"))


def cleaned(fields: kn.New) -> kn.Delta:
    """Names without capitals and blanks."""
    return fields.withColumn("name", F.lower(F.trim("name")))


def priced(cleaned: kn.New, sites: kn.All) -> kn.Delta:
    """Prices in one currency."""
    euros = F.expr("CAST(price * rate AS decimal(10,2))").alias("euros")
    return cleaned.join(sites.select("site", "rate"), "site").select("id", "site", "name", "category", euros)


def listed(best: kn.All) -> kn.Base:
    """One line for each category."""
    line = F.array_join(F.array_sort(F.collect_list(F.concat_ws(" ", "place", "name"))), ", ")
    return best.groupBy("category").agg(line.alias("line"))


FUNCTIONS = {"fields": (fields, FIELDS, "id"), "cleaned": (cleaned, FIELDS, "id"), "priced": (priced, PRICED, "id")}
LAST = {"listed": (listed, "category string, line string", "category")}
TASKS = (*FUNCTIONS, *VIEWS, *LAST)


def measure(scale: Scale) -> list[Report]:
    """Waves through the workflow, after many that warm Java up."""
    quick = scale is Scale.QUICK
    with sandbox(_workflow()) as (project, place):
        taken = _timed(project, place, rounds=3 if quick else 15, warm=2 if quick else 30)
    ways = {"bare Spark": "bare", "`project.run`": "run"}
    return [
        Report(
            name="small_workflow",
            title=f"A workflow of {len(TASKS)} tasks over {ROWS} keyed rows of which {CHANGED} change in each round",
            columns=("way", "all tasks, s", "each task, s", "Java's compilers, part of CPU"),
            rows=[
                (name, taken.median(way), taken.median(way) / len(TASKS), taken.compiling_share(way))
                for name, way in ways.items()
            ],
            goals=[
                Goal("times bare Spark", taken.ratio("run", "bare"), 1.5),
                Goal("times bare Spark's CPU", taken.cpu_ratio("run", "bare"), 1.5),
            ],
            timings={"round": taken.rounded()},
            note="Three functions on new rows and one on all, filters, groups, joins, de-duplication and ranking as"
            " views. Bare Spark computes the outputs one after the other from all rows, from Parquet to Parquet."
            f" Java's compilers left out, Kilonova takes {taken.compiled_ratio('run', 'bare'):.2f} times its CPU.",
        )
    ]


def _workflow() -> kn.Workflow:
    workflow = kn.Workflow("offers")
    workflow.channel("pages", PAGES, key="id")
    workflow.channel("sites", SITES, key="site")
    for function, schema, key in (FUNCTIONS | LAST).values():
        workflow.task(schema=schema, key=key)(function)
    for name, query in VIEWS.items():
        workflow.view(name, query)
    return workflow


def _timed(project: Project, place: Path, rounds: int, warm: int) -> Timings:
    spark, waves = project.warehouse.spark, itertools.count(1)
    sites = spark.range(20).selectExpr(
        "concat('site-', id) AS site",
        "concat('country-', id % 5) AS country",
        "CAST(1 + id / 100 AS decimal(6,4)) rate",
    )
    project.ingest("sites", sites)
    write(sites, place / "sites")
    project.ingest("pages", _pages(project, 0, ROWS, 0))
    project.run()

    def arrive() -> None:
        wave = next(waves)
        project.ingest("pages", _pages(project, wave * CHANGED % ROWS, CHANGED, wave))
        write(project.read("pages"), place / "pages")

    schemas = {"pages": PAGES, "sites": SITES} | {name: project.read(name).schema for name in TASKS}

    def bare() -> None:
        def read(name: str) -> DataFrame:
            return spark.read.schema(schemas[name]).parquet(str(place / name))

        def put(rows: DataFrame, name: str) -> None:
            write(rows, place / name)
            read(name).createOrReplaceTempView(name)

        read("sites").createOrReplaceTempView("sites")
        put(fields(read("pages")), "fields")
        put(cleaned(read("fields")), "cleaned")
        put(priced(read("cleaned"), read("sites")), "priced")
        for name, query in VIEWS.items():
            put(spark.sql(query), name)
        put(listed(read("best")), "listed")

    return interleaved({"run": project.run, "bare": bare}, rounds, warm=warm, before=arrive)


def _pages(project: Project, first: int, count: int, wave: int) -> DataFrame:
    """Pages of consecutive ids, with other names and prices in each wave."""
    return project.warehouse.spark.range(first, first + count).selectExpr(
        "id",
        "concat('site-', id % 20) AS site",
        f"concat('name= Thing ', (id + {wave}) % 400, ';category=', id % 12, ';price=',"
        f" (id * 37 + {wave} * 11) % 100 + 1, '.5;') AS page",
    )
