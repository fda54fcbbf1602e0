"""Entry point of the `kilonova` command, and of `python -m kilonova`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line, and exit with its code.

    Imports create objects that stay: searching them for garbage would take a tenth of the time of a short command.
    """
    gc.disable()
    from kilonova.cli import main as run_command_line

    gc.freeze()
    gc.enable()
    run_command_line()


if __name__ == "__main__":
    main()
