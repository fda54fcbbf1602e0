"""Unique articles from a generated feed with known duplicates, checked against the truth after every batch."""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

import kilonova as kn
from examples.news import feed
from examples.news.workflow import wf

console = Console(highlight=False)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="python -m examples.news", description=__doc__)
    parser.add_argument("--master", help="Spark's master, such as local[2] or spark://host:7077")
    parser.add_argument("--remote", help="a Spark Connect server, such as sc://host:15002")
    args = parser.parse_args()
    spark = {name: value for name in ("master", "remote") if (value := getattr(args, name))}
    settings = {"spark": spark} if spark else {}
    with tempfile.TemporaryDirectory(prefix="news-") as place, kn.open_project(place, **settings) as project:
        deduplicate(project, Path(place))


def deduplicate(project: kn.Project, place: Path) -> None:
    """Feed all batches through the workflow, and compare the unique articles with the truth after each.

    Raises:
        AssertionError: they differ.
    """
    project.create()
    project.apply(wf)
    made = feed.generate(seed=1)
    for number, path in enumerate(made.write(place / "incoming"), 1):
        project.ingest("articles", path)
        if number == 1:
            project.run(["site_templates"])
        project.run(["tagged", "shingled", "dedupe"])
        _, rows = project.rows("unique_articles")
        made.check((row[0] for row in rows), after=number)
        console.print(f"batch {number}: {len(rows)} unique articles, as they should be")


if __name__ == "__main__":
    main()
