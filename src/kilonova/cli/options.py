"""The command line application, and the options that commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilonova.service.queries import ProjectReader, open_reader

if TYPE_CHECKING:
    from kilonova.service.project import Project

NOTHING_TO_DO = 3
QUARANTINED = 4
TRY_LATER = 75

app = typer.Typer(
    help="Keep derived data sets up to date on Spark while data and logic change.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
)


@dataclass(slots=True)
class Common:
    """Options that apply to every command."""

    directory: Path = field(default_factory=Path)
    json: bool = False
    quiet: bool = False
    given: dict[str, Any] = field(default_factory=dict)

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        named = {"project": str(self.directory), "catalog": self.given.get("catalog")}
        named |= {"warehouse": self.given.get("warehouse"), **self.given.get("spark", {})}
        flags = [f"--{name}" for name, on in (("json", self.json), ("quiet", self.quiet)) if on]
        return [*(word for name, value in named.items() if value for word in (f"--{name}", value)), *flags]


common = Common()


@app.callback()
def options(
    directory: Annotated[Path, typer.Option("--project", "-C", help="The project's directory.")] = Path(),
    catalog: Annotated[str | None, typer.Option(help="The catalog's URL, or a path for SQLite.")] = None,
    warehouse: Annotated[str | None, typer.Option(help="The warehouse's path or URL.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master, such as local[4].")] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Options that go before the command."""
    given: dict[str, Any] = {"catalog": catalog, "warehouse": warehouse}
    if master is not None or remote is not None:
        given["spark"] = {"master": master, "remote": remote}
    common.directory, common.json, common.quiet, common.given = directory, json, quiet, given


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ChannelName = Annotated[str, typer.Argument(help="The channel.")]


def reader() -> AbstractContextManager[ProjectReader]:
    """Open the project's catalog, for commands that only show what it records."""
    return open_reader(common.directory, **common.given)


@contextmanager
def project(watched: bool = False) -> Iterator[Project]:
    """Open the project, with progress on the terminal if `watched`.

    What only `reader` does not need is imported here: that takes longer than most queries of a catalog.
    """
    from kilonova.cli.progress import ProgressDisplay
    from kilonova.service.project import open_project

    if not watched:
        with open_project(common.directory, **common.given) as opened:
            yield opened
        return
    with (
        ProgressDisplay(common.quiet or common.json) as watch,
        open_project(common.directory, listener=watch, **common.given) as opened,
    ):
        yield opened
        opened.resources.prepare_next_start()
