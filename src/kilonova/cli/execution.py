"""Execution of one command line: what it reports of errors, and its exit code.

Exit codes: 0 success; 1 an error; 2 a wrong command line; 3 nothing to do (`run`, `scan`) or changes are pending
(`plan --check`); 4 files were quarantined (`run`, `scan`); 75 a conflict with another run or process: try again later.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from kilonova.cli import render
from kilonova.cli.options import TRY_LATER, app
from kilonova.errors import KilonovaError, describe_defect

_INTERRUPTED = 130


def execute(words: Sequence[str]) -> int:
    """Execute a command line, report an error as one line or as JSON, and return the exit code.

    Args:
        words: the words after `kilonova`.
    """
    try:
        app(list(words), prog_name="kilonova")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KilonovaError as error:
        if "--json" in words:
            render.as_json(error.to_dict())
        else:
            render.err.print(f"Error: {error}", style="red", markup=False, soft_wrap=True)
        return TRY_LATER if error.code == "busy" else 1
    except Exception as error:
        found = describe_defect(error)
        traceback.print_exception(error)
        if "--json" in words:
            render.as_json(found)
        else:
            render.err.print(f"Error: {found['problem']}. {found['hint']}.", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        render.err.print("Interrupted; nothing of the run is left behind.", style="red")
        return _INTERRUPTED
    return 0
