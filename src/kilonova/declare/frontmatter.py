"""Front matter: a YAML mapping between two lines `---` at the top of a file.

All scalars are texts, whatever YAML makes of them elsewhere: `NO` is a country, `012` has its zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from kilonova.errors import DeclarationError

MARK = "---"

Plain = str | list["Plain"] | dict[str, "Plain"]
"""What YAML says, with texts for scalars."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field's value, and the line of the file in which it stands."""

    value: Plain
    line: int


@dataclass(frozen=True, slots=True)
class Parted:
    """A file in its two parts.

    Attributes:
        fields: what the front matter says; empty without one.
        body: what comes after it.
        line: the line of the file in which the body begins, from 1.
    """

    fields: Mapping[str, Field]
    body: str
    line: int


def parted(text: str) -> Parted:
    r"""Take the front matter off a file.

    Raises:
        DeclarationError: it is not closed, is not YAML, is no mapping, or says something twice.

    >>> parted("---\nkey: id\n---\nSELECT 1")
    Parted(fields={'key': Field(value='id', line=2)}, body='SELECT 1', line=4)
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None or lines[first].rstrip() != MARK:
        return Parted({}, text, 1)
    last = next((number for number in range(first + 1, len(lines)) if lines[number].rstrip() == MARK), None)
    if last is None:
        raise DeclarationError(f"line {first + 1}: the front matter has no end", hint=f"End it with a line {MARK}")
    return Parted(_fields("\n".join(lines[first + 1 : last]), first + 2), "\n".join(lines[last + 1 :]), last + 2)


def _fields(text: str, line: int) -> Mapping[str, Field]:
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        at = line + (error.problem_mark.line if error.problem_mark is not None else 0)
        raise DeclarationError(f"line {at}: the front matter is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise DeclarationError(f"the front matter is not YAML: {' '.join(str(error).split())}") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise DeclarationError(f"line {line}: the front matter is no mapping", hint="Write fields, such as key: id")
    named = _named(root, line)
    return {name: Field(_plain(node, line), line + start) for name, (node, start) in named.items()}


def _named(mapping: yaml.MappingNode, line: int) -> dict[str, tuple[yaml.Node, int]]:
    """The nodes of a mapping by name, each with the line of its name."""
    found: dict[str, tuple[yaml.Node, int]] = {}
    for name, node in mapping.value:
        start = name.start_mark.line
        if not isinstance(name, yaml.ScalarNode):
            raise DeclarationError(f"line {line + start}: the name of a field is a word")
        if name.value in found:
            raise DeclarationError(f"line {line + start}: {name.value} is said twice", hint="Remove one")
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
