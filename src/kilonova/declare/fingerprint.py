"""Fingerprint of a definition: equal for definitions that do the same, across processes and hash seeds.

The definition of a function is its syntax without formatting, comments, docstrings and annotations, its default values,
the result of its decorators, and, recursively, everything that it refers to: closures, globals, and objects of local
modules, accessed by attribute or imported within the function. The definition of a local class is its bases, attributes
and methods; that of any other object its type and its pickled state. Modules are local if they are pickled by value;
installed modules count by name, so upgrading a library is not a change of logic.

The order of sets and of an object's attributes is ignored; that of dictionaries counts, as it decides the order of
columns. Parts that the fingerprint cannot cover (code generated from text, objects without accessible state) are
reported as *unseen*: changes of them are not detected.
"""

from __future__ import annotations

import builtins
import copyreg
import hashlib
import importlib
import importlib.util
import inspect
import io
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kilonova.declare.normal_form import Uses, normal_form, uses_of
from kilonova.declare.pickling import Pickler, imported_if_local, is_local
from kilonova.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class DefinitionDigest:
    """Fingerprint of a definition.

    Attributes:
        digest: equal for definitions that do the same.
        unseen: descriptions of the parts that it does not cover.
    """

    digest: str
    unseen: tuple[str, ...]


def source_of(function: Callable[..., Any]) -> str:
    """Return the source text of a function.

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


def fingerprint(item: object) -> DefinitionDigest:
    """Return the fingerprint of a function, a class or any other object."""
    walk = _Walk()
    walk.describe(item)
    return DefinitionDigest(walk.digest.hexdigest()[:32], tuple(dict.fromkeys(walk.unseen)))


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_HEAP_TYPE = 1 << 9
"""Flag of types that are created at run time, rather than compiled into Python or a library."""
_BY_TEXT = (eval, exec, globals, __import__, importlib.import_module)
_NO_STATE = frozenset(("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__"))
_NO_STATE |= {"__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__", "_abc_impl"}
_NO_STATE |= {"__annotations_cache__", "__annotate_cache__"}


class _Walk:
    """Traversal of all functions, classes and objects that a definition refers to, each once."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.unseen: list[str] = []
        self._met: dict[int, tuple[int, object]] = {}
        self._trail: list[str] = []

    def describe(self, item: Any) -> None:
        """Add an object's definition to the digest."""
        kind = type(item)
        if kind in _PLAIN:
            self._say(kind.__name__, repr(item))
        elif kind is tuple:
            self._all("tuple", item)
        elif isinstance(item, set | frozenset):
            self._set(item)
        elif id(item) in self._met:
            self._say("met", str(self._met[id(item)][0]))
        else:
            self._met[id(item)] = (len(self._met), item)  # holding the object keeps its id unique
            self._describe(item)

    def _describe(self, item: Any) -> None:
        if type(item) is list:
            self._all("list", item)
        elif type(item) is dict:
            self._all("dict", (part for pair in item.items() for part in pair))
        elif isinstance(item, types.FunctionType):
            self._function(item)
        elif isinstance(item, types.ModuleType):
            self._module(item)
        elif isinstance(item, type):
            self._class(item)
        elif isinstance(item, property):
            self._all("property", (item.fget, item.fset, item.fdel))
        elif isinstance(item, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
            self._builtin(item)
        else:
            self._object(item)

    def _say(self, *words: str) -> None:
        for word in words:
            data = word.encode(errors="surrogatepass")
            self.digest.update(b"%d:" % len(data) + data)

    def _all(self, kind: str, items: Iterable[Any]) -> None:
        every = list(items)
        self._say(kind, str(len(every)))
        for item in every:
            self.describe(item)

    def _named(self, kind: str, items: Iterable[tuple[str, Any]]) -> None:
        every = sorted(items, key=lambda pair: pair[0])
        self._say(kind, str(len(every)))
        for name, item in every:
            self._say(name)
            with self._within(name):
                self.describe(item)

    def _set(self, items: Iterable[Any]) -> None:
        """Add a set, whose order depends on the hash seed: its elements' separate digests, sorted."""
        digests = []
        for item in items:
            part = _Walk()
            part.unseen, part._met, part._trail = self.unseen, dict(self._met), self._trail
            part.describe(item)
            digests.append(part.digest.hexdigest())
        self._say(type(items).__name__, *sorted(digests))

    def _function(self, item: types.FunctionType) -> None:
        module = item.__globals__.get("__name__")
        if not is_local(module):
            self._say("function", str(module), item.__code__.co_qualname)
            if _importable(item):
                return
            cells = zip(item.__code__.co_freevars, item.__closure__ or (), strict=True)
            names = [(name, value) for name, cell in cells for value in _content(cell)]
        else:
            self._say("function", normal_form(item.__code__))
        with self._within(item.__name__):
            self.describe(item.__defaults__)
            self._named("keywords", (item.__kwdefaults__ or {}).items())
            self._named("attributes", vars(item).items())
            if is_local(module):
                self._references(item)
            else:
                self._named("closure", names)

    def _references(self, item: types.FunctionType) -> None:
        """Add the globals, closure cells and imports that a local function refers to."""
        uses = uses_of(item.__code__)
        known = {name: item.__globals__[name] for name in uses.globals if name in item.__globals__}
        for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
            known.update((name, value) for value in _content(cell))
        for name in sorted(uses.globals - known.keys()):
            if getattr(builtins, name, None) in _BY_TEXT:
                self._unseen(f"code that {name} creates or looks up at run time")
        known |= self._imports(uses, item.__globals__)
        for name in sorted(known):
            self._say(name)
            with self._within(name):
                for chain in sorted(uses.chains.get(name, {()})):
                    self._attribute(known[name], chain)

    def _attribute(self, value: Any, chain: tuple[str, ...]) -> None:
        """Add the object that a chain of attributes resolves to, as far as the chain goes through local modules."""
        while chain and isinstance(value, types.ModuleType) and is_local(value.__name__):
            if not hasattr(value, chain[0]):
                self._unseen(f"{value.__name__}.{chain[0]}, which does not exist yet")
                return
            self._say(chain[0])
            value, chain = getattr(value, chain[0]), chain[1:]
        if value is importlib and chain[:1] == ("import_module",):
            value = importlib.import_module
        if any(value is item for item in _BY_TEXT):
            self._unseen(f"code that {value.__name__} creates or looks up at run time")
        self.describe(value)

    def _imports(self, uses: Uses, around: dict[str, Any]) -> dict[str, Any]:
        """Return the local objects that imports within a function bind, by name."""
        found: dict[str, Any] = {}
        for bound, name, attribute in uses.imports:
            try:
                name = importlib.util.resolve_name(name, around.get("__package__"))
                module = imported_if_local(name)
                if module is None:
                    continue
                if attribute is None:
                    found[bound] = module if bound != name.partition(".")[0] else sys.modules[bound]
                elif attribute == "*" or hasattr(module, attribute):
                    found[bound] = module if attribute == "*" else getattr(module, attribute)
                else:
                    found[bound] = importlib.import_module(f"{name}.{attribute}")
            except Exception as error:
                self._unseen(f"the module {name}, which cannot be imported: {error}")
        return found

    def _module(self, item: types.ModuleType) -> None:
        self._say("module")
        if is_local(item.__name__):
            self._named("globals", ((k, v) for k, v in vars(item).items() if not k.startswith("__")))
        else:
            self._say(item.__name__)

    def _class(self, item: type) -> None:
        if not is_local(item.__module__):
            self._say("class", item.__module__, item.__qualname__)
            if _importable(item) or not item.__flags__ & _HEAP_TYPE:
                return
        self._say("class", item.__name__)
        with self._within(item.__name__):
            self._all("bases", (type(item), *item.__bases__))
            self._named("annotations", inspect.get_annotations(item).items())
            self._named("namespace", ((k, v) for k, v in vars(item).items() if k not in _NO_STATE and not _slot(v)))

    def _builtin(self, item: Any) -> None:
        module = getattr(item, "__module__", None)
        self._say("builtin", str(module), item.__qualname__)
        owner = getattr(item, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            self.describe(owner)
        elif module is not None and is_local(module):
            self._unseen(f"the compiled function {module}.{item.__qualname__}")

    def _object(self, item: Any) -> None:
        """Add an object by its type and the state by which it would be pickled."""
        self._say("object")
        self.describe(type(item))
        if isinstance(item, io.IOBase):
            self._unseen("an open file")
            return
        try:
            reduced = _reduced(item)
        except Exception:
            self._unseen(f"an object of {type(item).__module__}.{type(item).__qualname__}")
            return
        if isinstance(reduced, str):
            self._say(str(getattr(item, "__module__", None)), reduced)
            self.describe(getattr(item, "__wrapped__", None))
            return
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        self.describe(make)
        self._all("arguments", args)
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict) and all(isinstance(name, str) for name in part):
                self._named("state", ((name, value) for name, value in part.items() if name != "__doc__"))
            else:
                self.describe(part)
        self._all("items", items or ())
        self._all("pairs", (part for pair in pairs or () for part in pair))

    def _unseen(self, what: str) -> None:
        self.unseen.append(f"{what}, through {'.'.join(self._trail)}" if self._trail else what)

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._trail.append(name)
        try:
            yield
        finally:
            self._trail.pop()


def _reduced(item: Any) -> Any:
    """Return the pickle reduction of an object: the name of a global, or a function, its arguments and a state."""
    reduce = Pickler.dispatch_table.get(type(item), copyreg.dispatch_table.get(type(item)))
    return item.__reduce_ex__(4) if reduce is None else reduce(item)


def _importable(item: types.FunctionType | type) -> bool:
    """Return whether a function or class is pickled by name: its module is not local and its name resolves to it."""
    if is_local(item.__module__):
        return False
    found: Any = sys.modules.get(item.__module__)
    for name in item.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is item


def _content(cell: types.CellType) -> list[Any]:
    """Return the content of a closure cell as a list, empty where the name is not bound yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _slot(value: object) -> bool:
    """Return whether a class attribute is only the descriptor of a slot or of the instance dictionary."""
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
