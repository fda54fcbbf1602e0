"""Code that somebody has sent is loaded in a process of its own, and what it declares comes back as values.

Whatever that code does when it is loaded, exit, hang or change the modules of its process, ends with this process. The
functions that it declares are kept by value and run later, as those of all workflows do.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kilonova.declare.load import load
from kilonova.declare.workflow import Declared
from kilonova.errors import DeclarationError, KilonovaError
from kilonova.server.unpacking import unpack
from kilonova.service.project import Project, open_project

_OUTCOME = "outcome"


def declared(project: Project, file: str, format: str, places: Sequence[str]) -> tuple[Declared, ...]:
    """The workflows that a file declares that somebody has sent.

    Args:
        project: the project, for the channels of its other workflows.
        file: the file.
        format: `python`, or `zip` for one of Python files or folders of SQL files.
        places: which of those in a zip define workflows; the only one that lies at its top if there are none.

    Raises:
        DeclarationError: a workflow cannot be, or the code ended its process or took longer than `serve.loading`.
        UnreadableInput: the zip cannot be unpacked.
        TooLarge: the zip holds too much.
    """
    seconds = project.settings.serve.loading
    with tempfile.TemporaryDirectory(dir=Path(file).parent) as place:  # with which it goes if this process is ended
        order = {
            "directory": str(project.directory.resolve()),
            "settings": project.settings.model_dump(mode="json"),
            "file": file,
            "format": format,
            "places": list(places),
            "outcome": str(Path(place) / _OUTCOME),
        }
        (Path(place) / "sent").mkdir()
        words = [sys.executable, "-P", "-m", "kilonova.server.declaring"]  # others can read it, so no settings go there
        ended = subprocess.run(words, cwd=Path(place) / "sent", input=json.dumps(order), text=True, check=False)
        try:
            outcome = pickle.loads((Path(place) / _OUTCOME).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            if ended.returncode == -signal.SIGALRM:
                problem = f"the workflow took longer than {seconds} s to be loaded"
                raise DeclarationError(problem, hint="Do in tasks what takes time, or raise serve.loading") from None
            problem = f"the workflow's code ended the process that loaded it, with {ended.returncode}"
            raise DeclarationError(problem, hint="It must do nothing but declare when it is loaded") from None
    if isinstance(outcome, KilonovaError):
        raise outcome
    found: tuple[Declared, ...] = outcome
    return found


def _declare(order: dict[str, Any]) -> tuple[Declared, ...] | KilonovaError:
    """Carry out an order of `declared` in the present directory, which is empty."""
    here = Path.cwd()
    try:
        with open_project(order["directory"], **order["settings"]) as project:
            signal.alarm(project.settings.serve.loading)  # the system ends this process then, whatever it is at
            if order["format"] == "zip":
                unpack(Path(order["file"]), here, project.settings.serve.upload << 20)
                places = _places(order["places"])
            else:
                places = [Path("workflow.py")]
                places[0].write_bytes(Path(order["file"]).read_bytes())
            workflows = [workflow for path in places for workflow in load(path)]
            signal.alarm(0)
            return project.declared(workflows)
    except KilonovaError as error:
        if error.path is not None and Path(error.path).is_relative_to(here):
            error.path = str(Path(error.path).relative_to(here))
        return error


def _places(names: Sequence[str]) -> list[Path]:
    """Where a zip that has been unpacked defines workflows.

    Raises:
        DeclarationError: that is not said, or is said wrongly.
    """
    top = sorted(path.name for path in Path().iterdir() if not path.name.startswith((".", "__")))
    if not names:
        if len(top) != 1:
            raise DeclarationError(
                f"the zip holds {', '.join(top) or 'nothing'}", hint="Say what defines workflows with place"
            )
        return [Path(top[0])]
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] not in top or ".." in parts:
            raise DeclarationError(
                "there is no such file or folder in the zip", path=name, hint=f"Use {' or '.join(top)}"
            )
    return [Path(name) for name in names]


if __name__ == "__main__":
    _order = json.load(sys.stdin)
    _outcome = pickle.dumps(_declare(_order))
    Path(_order["outcome"]).write_bytes(_outcome)
    sys.stdout.flush()
    os._exit(0)  # threads that the code has started are not waited for
