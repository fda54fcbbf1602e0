"""The command that executes further commands in one process, so that only the first waits for Spark to start."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import typer

from kilonova.cli import render
from kilonova.cli.execution import execute
from kilonova.cli.options import NOTHING_TO_DO, QUARANTINED, app, common, project
from kilonova.errors import KilonovaError

if TYPE_CHECKING:
    from kilonova.service.project import Project

commands = typer.Typer()

_PROMPT = "kilonova> "


@commands.command()
def shell() -> None:
    """Execute commands, one per line, in one Spark session; stop at an error unless it is a terminal."""
    interactive = sys.stdin.isatty()
    before, loaded = common.words(), set(sys.modules)
    with project() as kept:
        starting = Thread(target=_start, args=[kept], name="spark", daemon=True)
        starting.start()
        for words in _lines(interactive):
            if starting.is_alive():
                render.err.print("Spark is starting…", style="dim")
                starting.join()
            code = execute([*before, *words])
            _forget_modules(loaded)
            if code not in (0, NOTHING_TO_DO, QUARANTINED) and not interactive:
                raise typer.Exit(code)


def _start(kept: Project) -> None:
    with suppress(KilonovaError):  # the first command that needs Spark fails with it
        _ = kept.warehouse


def _lines(interactive: bool) -> Iterator[list[str]]:
    """Yield the words of each line, until the input or `exit` ends them; blank lines and comments are skipped."""
    if interactive:
        with suppress(ImportError):
            import readline

            names = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
            readline.set_completer(lambda text, n: [*(name for name in names if name.startswith(text)), None][n])
            readline.parse_and_bind("tab: complete")
    while True:
        try:
            line = input(_PROMPT if interactive else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            render.err.print(f"Error: {error}", style="red", markup=False)
            words = []
            if not interactive:
                raise typer.Exit(2) from None
        if words in (["exit"], ["quit"]):
            return
        if words:
            yield words


def _forget_modules(loaded: set[str]) -> None:
    """Unload the user's modules that a command imported, because they may have changed before the next command."""
    from kilonova.declare.pickling import is_local

    for name in set(sys.modules) - loaded:
        if is_local(name):
            del sys.modules[name]
