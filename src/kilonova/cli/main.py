"""Entry point of the `kilonova` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kilonova.cli import bounds, files, inspect, project, run, server, shell, simulate
from kilonova.cli.execution import execute
from kilonova.cli.options import app

for module in (project, run, inspect, bounds, simulate, files, server, shell):
    app.add_typer(module.commands)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, and exit with its code.

    Args:
        words: the words after `kilonova`; those of this process if left out.
    """
    sys.exit(execute(sys.argv[1:] if words is None else words))
