"""Response models: pydantic models that read domain values by their attributes, so that routes return the values."""

from __future__ import annotations

from inspect import getdoc
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from kilonova.model.encoding import describe_encoding


class ResponseModel(BaseModel):
    """Base class of response models."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


Text = Annotated[str, BeforeValidator(str)]
"""A value as text."""

EncodingText = Annotated[str, BeforeValidator(describe_encoding)]
"""An encoding as text."""


def attribute(*path: str) -> Any:
    """Return a field that is read from an attribute of another name, or of an attribute's value."""
    return Field(validation_alias=AliasPath(*path))


def response_model(value: type, *, flat: str = "", **changed: Any) -> Any:
    """Return the response model of a domain value: its fields and documentation.

    Args:
        value: the dataclass.
        flat: the field in whose place a response has the fields of its value.
        changed: the types of fields that a response has in another form, or besides; None for those that it has not.
    """
    kinds: dict[str, Any] = {}
    for name, kind in get_type_hints(value, include_extras=True).items():
        if name == flat:
            kinds |= {each: Annotated[inner, attribute(flat, each)] for each, inner in get_type_hints(kind).items()}
        else:
            kinds[name] = kind
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in (kinds | changed).items() if kind is not None}
    return create_model(f"{value.__name__}Response", __base__=ResponseModel, __doc__=getdoc(value), **fields)


def list_of(model: Any) -> Any:
    """Return the type of a list of response models."""
    return GenericAlias(list, (model,))
