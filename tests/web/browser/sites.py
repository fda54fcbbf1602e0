"""Servers of the web page without workers, over projects whose history was never carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import kilonova as kn
from bench.crowd import fill, workflows
from kilonova.catalog import channel_store, runs
from kilonova.model.block import Delta
from kilonova.model.run import Committed, RefreshMethod
from kilonova.service.project import Project, open_project
from kilonova.service.spark_operations import SparkOperations
from kilonova.web.application import serve_http
from tests.catalog.building import a_block, an_output, begin
from tests.fakes import Prompt
from tests.service.writing import Writing, wrote
from tests.shop import OFTEN


@dataclass(frozen=True)
class Site:
    """A project, and where its page is."""

    project: Project
    address: str


@contextmanager
def answering(place: Path, server: SparkOperations | None = None, *, port: int = 0) -> Iterator[Site]:
    """A server over the project in a directory, until the end of the block."""
    settings = {"port": port, "max_upload_mb": 1, "rate_limit": OFTEN, "failed_auth_limit": OFTEN}
    with (
        open_project(place, serve=settings, spark={"analyse": False}) as project,
        serve_http(server or Prompt(), project) as address,
    ):
        yield Site(project, address)


def crowded(place: Path, *, sources: int, tasks: int, runs: int) -> Path:
    """Make a project in a new directory of this one, with so much in it."""
    shop = place / "shop"
    shop.mkdir()
    with open_project(shop, spark={"analyse": False}) as project:
        project.create()
        for workflow in workflows(sources, tasks):
            project.apply(workflow)
        if runs:
            fill(project, runs)
    return shop


def arrived(project: Project, channel: str) -> int:
    """Let a block come to a channel, as if it had been ingested; the run."""
    with project.catalog.writing() as tx:
        run, points = begin(tx, channel)
        schema = channel_store.channel_state(tx, channel).channel.schema
        assert schema is not None
        block = a_block(channel_store.new_block(tx, channel, run), Delta(points[channel] - 1, points[channel]))
        output = an_output(channel, points[channel], replace(block, schema=schema, columns=schema))
        assert isinstance(runs.commit(tx, run, inputs=(), outputs=[output], advances=()), Committed)
    return run


def changed(shop: Project) -> None:
    """Apply another definition of the view, from a file, after the first one has run."""
    made = {"per_user": Writing(rows=1)}
    wrote(shop.catalog, made, task="per_user", read=[("clicks", 1)], method=RefreshMethod.FULL)
    more = kn.Workflow("shop")
    more.file = shop.directory.resolve() / "shop.py"
    more.channel("clicks", "user string", watch=kn.watched_directory("inbox", settle_time="0 seconds"))
    more.view("per_user", "SELECT user, count(*) AS n, 1 AS one FROM clicks GROUP BY user")
    shop.apply(more)
