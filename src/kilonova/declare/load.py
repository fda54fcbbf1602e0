"""Loader for workflows from Python files and folders of SQL files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

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
        found = [workflow_from_folder(path)]
        found[0].file = path.resolve()
        return found
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
    try:
        with _imports_from(root):
            module = importlib.import_module(name) if len(parts) > 1 else _run_file(name, path)
            found = [item for item in vars(module).values() if isinstance(item, Workflow)]
            for workflow in found:  # while imports within functions are still found
                workflow.pickle_functions()
                workflow.file = path
    except KilonovaError as error:
        raise error.with_context(path=str(path)) from error.__cause__
    except Exception as error:
        raise DeclarationError(
            f"the file cannot be run: {type(error).__name__}: {error}",
            path=str(path),
            hint="Correct it; running it with Python shows the whole traceback",
        ) from error
    if not found:
        raise DeclarationError("the file defines no workflow", path=str(path), hint='Write: shop = kn.Workflow("shop")')
    return found


def _run_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_Compiling(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Compiling(SourceFileLoader):
    """Loader that compiles a file at each import.

    Python takes compiled code for current if its source has the same size and was modified in the same second.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _CompilingFinder:
    """Finder of a project's own modules, below a directory; leaves all others to the finders after it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path if path is not None else [str(self._root)])
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
            return None
        origin = Path(spec.origin)
        if self._root not in origin.parents or "site-packages" in origin.parts:  # of an environment in the project
            return None
        return importlib.util.spec_from_file_location(
            name,
            spec.origin,
            loader=_Compiling(name, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


@contextmanager
def _imports_from(root: Path) -> Iterator[None]:
    """Make modules in a directory importable, by their present source."""
    finder = _CompilingFinder(root)
    sys.path.insert(0, str(root))
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(str(root))
