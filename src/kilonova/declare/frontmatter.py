"""Front matter: a YAML mapping between two lines `---` at the top of a file.

All scalars are strings, without YAML's type conversion: `NO` stays a country code, `012` keeps its zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from kilonova.errors import DeclarationError

MARK = "---"

Plain = str | list["Plain"] | dict[str, "Plain"]
"""Parsed YAML, with strings for all scalars."""


@dataclass(frozen=True, slots=True)
class FrontMatterField:
    """Value of a field, and its line in the file."""

    value: Plain
    line: int


@dataclass(frozen=True, slots=True)
class SplitText:
    """File split into front matter and body.

    Attributes:
        fields: the fields of the front matter; empty without one.
        body: the text after it.
        line: the line of the file at which the body begins, from 1.
    """

    fields: Mapping[str, FrontMatterField]
    body: str
    line: int


def split_front_matter(text: str) -> SplitText:
    r"""Split a file into its front matter and its body.

    Raises:
        DeclarationError: it is not closed, is not YAML, is no mapping, or has a duplicate field.

    >>> split_front_matter("---\nkey: id\n---\nSELECT 1")
    SplitText(fields={'key': FrontMatterField(value='id', line=2)}, body='SELECT 1', line=4)
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None or lines[first].rstrip() != MARK:
        return SplitText({}, text, 1)
    last = next((number for number in range(first + 1, len(lines)) if lines[number].rstrip() == MARK), None)
    if last is None:
        raise DeclarationError(f"line {first + 1}: the front matter is not closed", hint=f"End it with a line {MARK}")
    return SplitText(_fields("\n".join(lines[first + 1 : last]), first + 2), "\n".join(lines[last + 1 :]), last + 2)


def _fields(text: str, line: int) -> Mapping[str, FrontMatterField]:
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        at = line + (error.problem_mark.line if error.problem_mark is not None else 0)
        raise DeclarationError(
            f"line {at}: the front matter is not YAML: {error.problem or error.context}",
            hint="Write one field per line, such as key: id",
        ) from None
    except yaml.YAMLError as error:
        raise DeclarationError(
            f"the front matter is not YAML: {' '.join(str(error).split())}",
            hint="Write one field per line, such as key: id",
        ) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise DeclarationError(f"line {line}: the front matter is not a mapping", hint="Write fields, such as key: id")
    named = _named(root, line)
    return {name: FrontMatterField(_plain(node, line), line + start) for name, (node, start) in named.items()}


def _named(mapping: yaml.MappingNode, line: int) -> dict[str, tuple[yaml.Node, int]]:
    """Return the nodes of a mapping by name, each with the line of its name."""
    found: dict[str, tuple[yaml.Node, int]] = {}
    for name, node in mapping.value:
        start = name.start_mark.line
        if not isinstance(name, yaml.ScalarNode):
            raise DeclarationError(
                f"line {line + start}: the name of a field must be a word", hint="Write fields such as key: id"
            )
        if name.value in found:
            raise DeclarationError(f"line {line + start}: the field {name.value} occurs twice", hint="Remove one")
        found[name.value] = (node, start)
    return found


def _plain(node: yaml.Node, line: int) -> Plain:
    match node:
        case yaml.MappingNode():
            return {name: _plain(part, line) for name, (part, _) in _named(node, line).items()}
        case yaml.SequenceNode():
            return [_plain(part, line) for part in node.value]
        case _:
            return str(node.value)
