"""Loader of uploaded workflow code: runs it in a process of its own, and returns its declarations as values.

Effects of the code at load time, such as exiting, hanging or changing modules, end with that process. The functions
that it declares are pickled by value and run later, as those of all workflows do.
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
from kilonova.scheduler.zip_upload import unpack_zip
from kilonova.service.project import Project, open_project

_OUTCOME = "outcome"


def load_workflows(project: Project, file: str, format: str, paths: Sequence[str]) -> tuple[Declared, ...]:
    """Return the workflows that an uploaded file declares.

    Args:
        project: the project, for the channels of its other workflows.
        file: the file.
        format: `python`, or `zip` for one of Python files or folders of SQL files.
        paths: those in a zip that define workflows; if empty, the only one at its top level.

    Raises:
        DeclarationError: a workflow is invalid, or the code ended its process or took longer than `serve.load_timeout`.
        InputError: the zip cannot be unpacked.
        PayloadTooLarge: the zip holds too many entries or bytes.
    """
    seconds = project.settings.serve.load_timeout
    with tempfile.TemporaryDirectory(dir=Path(file).parent) as place:  # removed with its parent if killed
        order = {
            "directory": str(project.directory.resolve()),
            "settings": project.settings.model_dump(mode="json"),
            "file": file,
            "format": format,
            "paths": list(paths),
            "outcome": str(Path(place) / _OUTCOME),
        }
        (Path(place) / "sent").mkdir()
        words = [sys.executable, "-P", "-m", "kilonova.scheduler.workflow_loader"]  # world-readable: no settings
        ended = subprocess.run(words, cwd=Path(place) / "sent", input=json.dumps(order), text=True, check=False)
        try:
            outcome = pickle.loads((Path(place) / _OUTCOME).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            if ended.returncode == -signal.SIGALRM:
                problem = f"the workflow took longer than {seconds} s to load"
                hint = "Do slow work in tasks, or increase serve.load_timeout"
                raise DeclarationError(problem, hint=hint) from None
            problem = f"the workflow's code ended the process that loaded it, with {ended.returncode}"
            raise DeclarationError(problem, hint="Code that is loaded must only declare workflows") from None
    if isinstance(outcome, KilonovaError):
        raise outcome
    found: tuple[Declared, ...] = outcome
    return found


def _declare(order: dict[str, Any]) -> tuple[Declared, ...] | KilonovaError:
    """Execute an order of `load_workflows` in the current directory, which is empty."""
    here = Path.cwd()
    try:
        with open_project(order["directory"], **order["settings"]) as project:
            limits = project.settings.serve
            signal.alarm(limits.load_timeout)  # then the system kills this process, whatever it is doing
            if order["format"] == "zip":
                unpack_zip(Path(order["file"]), here, limits.max_upload_mb << 20)
                paths = _paths(order["paths"])
            else:
                paths = [Path("workflow.py")]
                paths[0].write_bytes(Path(order["file"]).read_bytes())
            workflows = [workflow for path in paths for workflow in load(path)]
            signal.alarm(0)
            return project.registration.declared(workflows)
    except KilonovaError as error:
        if error.path is not None and Path(error.path).is_relative_to(here):
            error.path = str(Path(error.path).relative_to(here))
        return error


def _paths(names: Sequence[str]) -> list[Path]:
    """Return the paths in an unpacked zip that define workflows, if the names are right or not needed."""
    top = sorted(path.name for path in Path().iterdir() if not path.name.startswith((".", "__")))
    if not names:
        if len(top) != 1:
            raise DeclarationError(
                f"the zip contains {', '.join(top) or 'nothing'}", hint="Name those that define workflows with path=…"
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
    os._exit(0)  # without waiting for threads that the code has started
