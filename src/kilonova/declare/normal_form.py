"""Normal form of code: equal for texts that differ only in parts without effect.

For a function: its syntax tree without decorators, docstrings, annotations and formatting, or its byte code where its
source cannot be found. For a SQL query: its text with each run of white space and comments replaced by one space,
except within literals and quoted names.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Names that the code of a function and of its inner functions refers to.

    Attributes:
        globals: global names and builtins.
        chains: the chains of attributes accessed on each name; an empty chain where the name is used alone.
        imports: the bindings of each import: the bound name, the module, and the imported attribute, if any.
    """

    globals: frozenset[str]
    chains: dict[str, frozenset[tuple[str, ...]]]
    imports: tuple[tuple[str, str, str | None], ...]


@functools.lru_cache(maxsize=10_000)
def normal_form(code: types.CodeType) -> str:
    """Return the normal form of a function's code."""
    node = _node(code)
    return _byte_code(code) if node is None else _dumped(node)


@functools.lru_cache(maxsize=10_000)
def uses_of(code: types.CodeType) -> Uses:
    """Return the names that a function's code refers to."""
    names: set[str] = set()
    for each in _nested(code):
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
                names.add(step.argval)
    node = _node(code)
    visitor = _Names()
    if node is not None:
        for part in ast.iter_child_nodes(node):
            visitor.visit(part)
    chains = {name: frozenset(found) for name, found in visitor.chains.items()}
    return Uses(globals=frozenset(names), chains=chains, imports=tuple(visitor.imports))


class _Names(ast.NodeVisitor):
    def __init__(self) -> None:
        self.chains: dict[str, set[tuple[str, ...]]] = {}
        self.imports: list[tuple[str, str, str | None]] = []

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            chain.insert(0, root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            self.chains.setdefault(root.id, set()).add(tuple(chain))
        else:
            self.visit(root)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.chains.setdefault(node.id, set()).add(())

    def visit_Import(self, node: ast.Import) -> None:
        self.imports += [(item.asname or item.name.partition(".")[0], item.name, None) for item in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        self.imports += [(item.asname or item.name, module, item.name) for item in node.names]


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those nested in it."""
    yield code
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from _nested(item)


def _byte_code(code: types.CodeType) -> str:
    parts = []
    for each in _nested(code):
        consts = [item for item in each.co_consts if not isinstance(item, types.CodeType)]
        shown = [sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item) for item in consts]
        parts.append(repr((each.co_code, shown, each.co_names, each.co_varnames, each.co_freevars)))
    return "\n".join(parts)


_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _node(code: types.CodeType) -> _Function | None:
    """Return the syntax tree of a function; None where its source cannot be found."""
    linecache.checkcache(code.co_filename)
    found = [
        node
        for node in _functions("".join(linecache.getlines(code.co_filename)))
        if getattr(node, "name", "<lambda>") == code.co_name and _first_line(node) == code.co_firstlineno
    ]
    if len(found) > 1:
        covering = [node for node in found if _covers(node, code)]
        found = sorted(covering, key=lambda node: (node.lineno, node.col_offset))[-1:]
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=200)
def _functions(text: str) -> tuple[_Function, ...]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, _Function))


def _first_line(node: _Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(item.lineno for item in (node, *decorators))


def _covers(node: _Function, code: types.CodeType) -> bool:
    """Return whether a function's body spans the source positions of its code."""
    body = node.body if isinstance(node.body, list) else [node.body]
    start = (body[0].lineno, body[0].col_offset)
    end = (body[-1].end_lineno or 0, body[-1].end_col_offset or 0)
    return all(
        start <= (line, column) and (last, width) <= end
        for line, last, column, width in code.co_positions()
        if line is not None and last is not None and column is not None and width
    )


def _dumped(node: _Function) -> str:
    if isinstance(node, ast.Lambda):
        return f"lambda {_text(node.args)}: {_text(node.body)}"
    return f"{type(node).__name__} {node.name} {_text(node.args)}: {_text(_statements(node.body))}"


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a body without constant expressions, which have no effect."""
    return [item for item in body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]


_FORM_ONLY = frozenset(("ctx", "kind", "type_comment", "decorator_list", "returns", "annotation"))


def _text(item: object) -> str:
    """Return a syntax tree as text, the same for all releases of Python that have its nodes."""
    match item:
        case ast.AnnAssign(target=target, value=value, simple=1):
            return "" if value is None else _text(ast.Assign(targets=[target], value=value))
        case ast.Set(elts=elements) if all(isinstance(element, ast.Constant) for element in elements):
            return f"Set({', '.join(sorted(map(_text, elements)))})"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return f"({' '.join(map(_text, item.decorator_list))}) {_dumped(item)}"
        case ast.ClassDef():
            fields = [item.name, *map(_text, (item.bases, item.keywords, item.decorator_list))]
            return f"ClassDef {fields}: {[_attribute(part) for part in _statements(item.body)]}"
        case ast.AST():
            parts = [(name, value) for name, value in ast.iter_fields(item) if name not in _FORM_ONLY]
            shown = [f"{name}={_text(value)}" for name, value in parts if isinstance(item, ast.Constant) or value]
            return f"{type(item).__name__}({', '.join(shown)})"
        case list():
            return f"[{', '.join(map(_text, _statements(item)))}]"
        case _:
            return repr(item)


def _attribute(item: ast.stmt) -> str:
    """Return a statement of a class as text, with its annotation: dataclasses and similar tools use it."""
    return ast.dump(item) if isinstance(item, ast.AnnAssign) else _text(item)


_SQL = re.compile(
    r"""(?P<kept>(?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?:\s|--[^\n]*|/\*(?!\+).*?\*/)+""",
    re.DOTALL,
)


def normal_sql(query: str) -> str:
    r"""Return the normal form of a SQL query.

    >>> normal_sql("SELECT 'a  b' -- why\n  FROM {t}") == normal_sql("SELECT 'a  b' FROM {t}")
    True
    >>> normal_sql("SELECT 'a  b'") == normal_sql("SELECT 'a b'")
    False
    """
    return _SQL.sub(lambda found: found["kept"] or " ", query).strip()
