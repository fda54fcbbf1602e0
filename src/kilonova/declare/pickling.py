"""Pickling of functions by value, with everything they need from the user's own modules."""

from __future__ import annotations

import copyreg
import functools
import importlib
import importlib.util
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.udf import UserDefinedFunction

from kilonova.errors import DeclarationError


def is_local(module: str | None) -> bool:
    """Return whether a module belongs to the user's project rather than to an installed package."""
    if module is None or module in ("__main__", "__mp_main__"):
        return True
    found = sys.modules.get(module)
    if found is None or module.partition(".")[0] in ("kilonova", "pyspark"):
        return False
    file = getattr(found, "__file__", None)
    return _is_local([file] if file is not None else getattr(found, "__path__", ()))


def _local_modules() -> list[ModuleType]:
    """Return the imported modules of the user's project."""
    every = list(sys.modules.items())
    for name, module in every:
        if name not in _CHECKED_MODULES or _CHECKED_MODULES[name][0] is not module:
            _CHECKED_MODULES[name] = module, isinstance(module, ModuleType) and is_local(name)
    return [module for name, module in every if _CHECKED_MODULES[name][1]]


_CHECKED_MODULES: dict[str, tuple[ModuleType, bool]] = {}
"""Modules by name, and whether they are local: a task looks at all of them, which are thousands."""


def imported_if_local(module: str) -> ModuleType | None:
    """Return a module of the user's project; None for others, which are not imported.

    Raises:
        ImportError: there is no such module.
    """
    if module not in sys.modules:
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec is None or not _is_local(spec.submodule_search_locations or [spec.origin or ""]):
            return None
        importlib.import_module(module)
    return sys.modules[module] if is_local(module) else None


def _is_local(places: Iterable[str]) -> bool:
    """Return whether a module at some locations belongs to the user's project; a built-in one has no location."""
    every = list(places)
    return bool(every) and not any(place in ("", "built-in", "frozen") or _is_installed(place) for place in every)


@functools.cache
def _is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    path = Path(file)
    return "site-packages" in path.parts or path.is_relative_to(Path(sys.base_prefix, "lib"))


def _reduced_udf(item: UserDefinedFunction) -> Any:
    """Return the pickle reduction of a function for Spark without what its first call has left in it."""
    return copyreg.__newobj__, (type(item),), {**vars(item), "_judf_placeholder": None}  # type: ignore[attr-defined]


class Pickler(cloudpickle.Pickler):
    """Pickler by value, of what workflows refer to."""

    dispatch_table = ChainMap({UserDefinedFunction: _reduced_udf}, cloudpickle.Pickler.dispatch_table)  # noqa: RUF012


def pickled(item: object) -> bytes:
    """Pickle an object by value, with everything it needs from the user's own modules."""
    registered = []
    for module in _local_modules():
        try:
            if module.__name__ != "__main__" and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        except ValueError:
            continue
    try:
        with io.BytesIO() as file:
            pickler: pickle.Pickler = Pickler(file)  # type: ignore[no-untyped-call]
            pickler.dump(item)
            return file.getvalue()
    except Exception as error:
        raise DeclarationError(
            f"{getattr(item, '__name__', item)!r} cannot be pickled by value: {error}",
            hint="Do not refer to open files, sessions or locks from it",
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
