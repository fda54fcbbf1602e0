"""Entry point of the `kilonova` command.

Exit codes: 0 success; 1 an error; 2 a wrong command line; 3 nothing to do (`run`) or changes are pending
(`plan --check`); 75 a conflict with another run or process: try again later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kilonova.cli import files, inspect, project, render, run, server, shell
from kilonova.cli.options import TRY_LATER, app
from kilonova.errors import KilonovaError

for module in (project, run, inspect, files, server, shell):
    app.add_typer(module.commands)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line; report errors as one line and as an exit code.

    Args:
        words: the words after `kilonova`; those of this process if left out.
    """
    given = list(sys.argv[1:] if words is None else words)
    try:
        app(given, prog_name="kilonova")
    except KilonovaError as error:
        if "--json" in given:
            render.as_json(error.to_dict())
        else:
            render.err.print(f"Error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(TRY_LATER if error.code == "busy" else 1)
    except KeyboardInterrupt:
        render.err.print("Interrupted; nothing of the run is left behind.", style="red")
        sys.exit(130)
