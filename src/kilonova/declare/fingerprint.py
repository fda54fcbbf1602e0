"""When two definitions of a function do the same, as far as can be told from the outside.

The fingerprint covers the function's syntax tree without docstring and annotations, and, recursively, the
local functions, classes and constants that it refers to. Formatting and comments do not count. Installed
modules count by name: upgrading a library is not a change of logic.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import cloudpickle

from kilonova.errors import DeclarationError


def source_of(function: Callable[..., Any]) -> str:
    """The source text of a function.

    Raises:
        DeclarationError: it has none, because it was typed into an interpreter.
    """
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise DeclarationError(
            f"the source of {getattr(function, '__name__', function)!r} cannot be found",
            hint="Define it in a file",
        ) from None


def fingerprint(function: Callable[..., Any], local: Callable[[str], bool]) -> str:
    """A digest that changes when what the function does changes.

    Args:
        function: the function.
        local: whether a module, by name, belongs to the user's project.
    """
    digest = hashlib.sha256()
    for part in _parts(function, local, set()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _parts(item: Any, local: Callable[[str], bool], seen: set[int]) -> Iterator[str]:
    if id(item) in seen:
        return
    seen.add(id(item))
    item = inspect.unwrap(item) if callable(item) else item
    if isinstance(item, types.ModuleType):
        yield f"module {item.__name__}"
    elif inspect.isfunction(item) and local(item.__module__):
        yield normalised(source_of(item))
        yield repr(item.__defaults__)
        for name, value in sorted(_references(item)):
            yield name
            yield from _parts(value, local, seen)
    elif inspect.isclass(item) and local(item.__module__):
        yield normalised(source_of(item))
    elif callable(item) and hasattr(item, "__qualname__"):
        yield f"{item.__module__}.{item.__qualname__}"
    else:
        try:
            text = repr(item)
            yield hashlib.sha256(cloudpickle.dumps(item)).hexdigest() if " at 0x" in text else text
        except Exception:
            yield f"a {type(item).__module__}.{type(item).__qualname__}"


def _references(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals and closure cells that a function refers to, those of its inner functions included."""
    names: set[str] = set()
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        names.update(item.argval for item in dis.get_instructions(code) if item.opname == "LOAD_GLOBAL")
        pending.extend(item for item in code.co_consts if isinstance(item, types.CodeType))
    for name in names & set(function.__globals__):
        yield name, function.__globals__[name]
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell.cell_contents


def normalised(source: str) -> str:
    r"""The syntax of a definition without decorators, docstrings, annotations and formatting.

    >>> normalised("def f(x: int):\n  'doc'\n  return (x)") == normalised("def f(x):\n    return x  # why")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)
