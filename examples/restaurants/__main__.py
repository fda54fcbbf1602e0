"""A crawl arrives while the extraction of restaurants changes; each change is migrated, and checked."""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

import kilonova as kn
from examples.restaurants.workflow import CHANGES, FIRST, Extraction, restaurants

console = Console(highlight=False)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="python -m examples.restaurants", description=__doc__)
    parser.add_argument("--pages", type=int, default=2000, help="pages of each crawl")
    pages = parser.parse_args().pages
    with tempfile.TemporaryDirectory(prefix="restaurants-") as place, kn.open_project(Path(place)) as project:
        project.create()
        for what, done in evolve(project, pages):
            console.print(f"{what}: {done}")


def evolve(project: kn.Project, pages: int) -> Iterable[tuple[str, str]]:
    """Change the extraction step by step while pages arrive, and compare the output with a recomputed one.

    Yields:
        Each change, and what the run did to the restaurants.

    Raises:
        AssertionError: the output differs from what the present extraction gives for all pages.
    """
    chance = random.Random(1)
    for number, (what, extraction) in enumerate({"first": FIRST, **CHANGES}.items()):
        project.apply(restaurants(extraction))
        ingest(project, chance, range(number * pages // 2, number * pages // 2 + pages))
        report = project.run()
        assert report is not None
        check(project, extraction)
        made = (item for run in report.runs for item in run.made if item.channel == "restaurants" and item.rows)
        yield what, ", then ".join(f"{item.reason.partition(':')[0]} ({item.rows} rows)" for item in made)


def ingest(project: kn.Project, chance: random.Random, urls: range) -> None:
    """Insert a crawl: new pages, and some that were crawled before and have changed."""
    spark = project.warehouse.spark
    crawl = [
        (
            f"http://example.org/{number}",
            f"name=Restaurant {number};address={number % 97} Main Street;hours={chance.randrange(7, 12)}-22;"
            f"menu=dish {number % 13};confidence={chance.random():.3f};",
        )
        for number in urls
    ]
    project.ingest("crawl", spark.createDataFrame(crawl, "url string, content string"))
    places = [(url,) for url, _ in crawl if chance.random() < 0.9]
    project.ingest("places", spark.createDataFrame(places, "url string"))


def check(project: kn.Project, extraction: Extraction) -> None:
    """Compare the restaurants with those that the extraction gives for all pages.

    Raises:
        AssertionError: they differ.
    """
    frames = {name: project.read(name) for name in ("places", "crawl")}
    query = extraction.query.replace("places p", "{places} p").replace("crawl c", "{crawl} c")
    expected = project.warehouse.spark.sql(query, **frames)
    found = project.read("restaurants")
    assert found.columns == expected.columns, found.columns
    assert Counter(found.collect()) == Counter(expected.collect())


if __name__ == "__main__":
    main()
