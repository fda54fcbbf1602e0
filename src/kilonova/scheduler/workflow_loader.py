"""Loader of workflow code for servers: runs it in a process of its own, and returns its declarations as values.

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
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from kilonova.declare.load import load
from kilonova.declare.workflow import Declared
from kilonova.errors import DeclarationError, KilonovaError
from kilonova.scheduler.zip_upload import unpack_zip
from kilonova.service.project import Project, open_project

_OUTCOME = "outcome"


UPLOADED, IN_PLACE = ("python", "zip"), "path"
"""Formats of workflow code: an uploaded Python file or zip, and a file or folder where the project has it."""


def load_workflows(
    project: Project, file: str, format: str, paths: Sequence[str] = (), workflow: str | None = None
) -> tuple[Declared, ...]:
    """Return the workflows that an uploaded file declares, or a file or folder of the project.

    Args:
        project: the project, for the channels of its other workflows.
        file: the file.
        format: `python`, `zip` for one of Python files or folders of SQL files, or `path` for a Python file or folder
            of SQL files that is not uploaded: it may import modules beside it.
        paths: those in a zip that define workflows; if empty, the only one at its top level.
        workflow: the name of a workflow that must be among them; None for none.

    Raises:
        DeclarationError: a workflow is invalid or missing, or the code ended its process or took longer than
            `serve.load_timeout`.
        InputError: the zip cannot be unpacked.
        PayloadTooLarge: the zip holds too many entries or bytes.
    """
    seconds = project.settings.serve.load_timeout
    parent = Path(file).parent if format in UPLOADED else None
    with tempfile.TemporaryDirectory(dir=parent) as place:  # an upload's is removed with its parent if killed
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
        here = Path(place) / "sent" if format in UPLOADED else project.directory.resolve()
        ended = subprocess.run(words, cwd=here, input=json.dumps(order), text=True, check=False)
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
    if workflow is not None and workflow not in {each.workflow.name for each in found}:
        problem = f"the file does not declare the workflow {workflow} any more"
        raise DeclarationError(problem, path=file, hint="Apply the file that does: kilonova apply FILE")
    return found


def _declare(order: dict[str, Any]) -> tuple[Declared, ...] | KilonovaError:
    """Execute an order of `load_workflows` in the current directory, which is empty."""
    here = Path.cwd()
    try:
        with open_project(order["directory"], **order["settings"]) as project:
            limits = project.settings.serve
            signal.alarm(limits.load_timeout)  # then the system kills this process, whatever it is doing
            match order["format"]:
                case "zip":
                    unpack_zip(Path(order["file"]), here, limits.max_upload_mb << 20)
                    paths = _paths(order["paths"])
                case "python":
                    paths = [Path("workflow.py")]
                    paths[0].write_bytes(Path(order["file"]).read_bytes())
                case _:
                    paths = [Path(order["file"])]
            workflows = [workflow for path in paths for workflow in load(path)]
            signal.alarm(0)
            declared = project.registration.declared(workflows)
            if order["format"] in UPLOADED:
                declared = tuple(replace(each, file=None) for each in declared)
            return declared
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
