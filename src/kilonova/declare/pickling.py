"""Functions kept by value, with all that they need of the user's own modules."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from kilonova.errors import DeclarationError


def is_local(module: str | None) -> bool:
    """Whether a module belongs to the user's project rather than to an installed package."""
    if module is None or module in ("__main__", "__mp_main__"):
        return True
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if found is None or file is None:
        return False
    if module.partition(".")[0] in ("kilonova", "pyspark"):
        return False
    return not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package; cached, as each declared task asks for every module."""
    path = Path(file)
    return "site-packages" in path.parts or path.is_relative_to(Path(sys.base_prefix, "lib"))


def pickled(item: object) -> bytes:
    """An object by value, with all that it needs of the user's own modules."""
    own = [module for name, module in list(sys.modules.items()) if is_local(name) and isinstance(module, ModuleType)]
    registered = []
    for module in own:
        try:
            if module.__name__ != "__main__" and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        except ValueError:
            continue
    try:
        return bytes(cloudpickle.dumps(item))
    except Exception as error:
        raise DeclarationError(
            f"{getattr(item, '__name__', item)!r} cannot be kept by value: {error}",
            hint="Do not refer to open files, sessions or locks from it",
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
