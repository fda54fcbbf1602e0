"""Loader for workflows from Python files and folders of SQL files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from kilonova.declare.folder import workflow_from_folder
from kilonova.declare.workflow import Workflow
from kilonova.errors import DeclarationError, KilonovaError


def load(path: Path) -> list[Workflow]:
    """Return the workflows that a Python file defines at its top level, or the one of a folder of SQL files.

    A file within a package is imported as a module of it, so that relative imports work.

    Raises:
        DeclarationError: the file does not exist, cannot be run, or defines no workflow.
    """
    if path.is_dir():
        return [workflow_from_folder(path)]
    path = path.resolve()
    if not path.is_file():
        raise DeclarationError(
            "there is no such file", path=str(path), hint="Name a Python file, or a folder of SQL files"
        )
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    name = ".".join(parts)
    sys.path.insert(0, str(root))
    try:
        if len(parts) > 1:
            module = importlib.import_module(name)
        else:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        found = [item for item in vars(module).values() if isinstance(item, Workflow)]
        for workflow in found:  # while sys.path still resolves imports within functions
            workflow.pickle_functions()
    except KilonovaError as error:
        raise error.with_context(path=str(path)) from error.__cause__
    except Exception as error:
        raise DeclarationError(f"the file cannot be run: {type(error).__name__}: {error}", path=str(path)) from error
    finally:
        sys.path.remove(str(root))
    if not found:
        raise DeclarationError("the file defines no workflow", path=str(path), hint='Write: shop = kn.Workflow("shop")')
    return found
