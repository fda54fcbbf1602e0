"""Manifest of a placed block: its catalog record, stored beside its files in the file `_block_<digest>.json`.

A block has a manifest for each of its placements in channels. It is written before the catalog records the placement,
so that the block can be verified without the catalog, and the catalog be recovered from the blocks. It is deterministic
text:

    {"format": 1, "catalog": …, "block": …, "suffix": …, "channel": …, "task": …, "run": …, "kind": [start, end],
     "point": …, "version": …, "schema": …, "encoding": …, "columns": …, "buckets": …, "statistics": {…},
     "external": …, "files": [{"name": …, "size": …, "rows": …, "checksum": …}, …]}

`start` is null for a base; `external` is null for a block whose files are in the warehouse; `files` is null if they are
not known. The rest is as in the catalog's tables (see `kilonova.catalog.codec`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from kilonova.catalog import codec
from kilonova.errors import CatalogError
from kilonova.model.block import Base, Block, Delta, Statistics, StoredFile
from kilonova.model.version import Version

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of a block, as placed in a channel.

    Attributes:
        catalog: the identity of the catalog.
        channel: the channel.
        task: the task or the step that placed it; None for an ingest.
        run: the run that placed it.
        point: the point of the channel that the block leads to.
        version: the version of the point, as reported by the run.
        block: the block.
    """

    catalog: str
    channel: str
    task: str | None
    run: int
    point: int
    version: Version
    block: Block


def digest(text: str) -> str:
    """Return the SHA-256 of a manifest, as the catalog records it."""
    return hashlib.sha256(text.encode()).hexdigest()


def manifest_to_text(manifest: Manifest) -> str:
    """Encode a manifest as the text of its file."""
    block = manifest.block
    value = {
        "format": FORMAT,
        "catalog": manifest.catalog,
        "block": block.number,
        "suffix": block.suffix,
        "channel": manifest.channel,
        "task": manifest.task,
        "run": manifest.run,
        "kind": [None if isinstance(block.kind, Base) else block.kind.start, block.end],
        "point": manifest.point,
        "version": codec.version_to_json(manifest.version),
        "schema": codec.schema_to_json(block.schema),
        "encoding": codec.encoding_to_json(block.encoding),
        "columns": codec.schema_to_json(block.columns),
        "buckets": block.buckets,
        "statistics": {
            "rows": block.statistics.rows,
            "bytes": block.statistics.bytes,
            "files": block.statistics.files,
            "removals": block.statistics.removals,
            "net_rows": block.statistics.net_rows,
        },
        "external": None if block.external is None else codec.external_to_json(block.external),
        "files": None
        if block.stored is None
        else [
            {"name": file.name, "size": file.size, "rows": file.rows, "checksum": file.checksum}
            for file in block.stored
        ],
    }
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def manifest_from_text(text: str) -> Manifest:
    """Decode the output of `manifest_to_text`; the block's manifest digest is that of the text.

    Raises:
        CatalogError: the text is not a manifest, or one of a format that this release does not know.
    """
    try:
        value: dict[str, Any] = json.loads(text)
        if value["format"] != FORMAT:
            raise CatalogError(f"a manifest has the unknown format {value['format']}", hint="Upgrade Kilonova")
        start, end = value["kind"]
        block = Block(
            number=value["block"],
            kind=Base(end) if start is None else Delta(start, end),
            schema=codec.schema_from_json(value["schema"]),
            encoding=codec.block_encoding_from_json(value["encoding"]),
            columns=codec.schema_from_json(value["columns"]),
            buckets=value["buckets"],
            statistics=Statistics(**value["statistics"]),
            external=None if value["external"] is None else codec.external_from_json(value["external"]),
            suffix=value["suffix"],
            stored=None if value["files"] is None else tuple(StoredFile(**file) for file in value["files"]),
            manifest=digest(text),
        )
        return Manifest(
            catalog=value["catalog"],
            channel=value["channel"],
            task=value["task"],
            run=value["run"],
            point=value["point"],
            version=codec.version_from_json(value["version"]),
            block=block,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogError(f"a manifest of a block cannot be read: {error}") from error
