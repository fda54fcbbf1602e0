"""How long `kilonova fsck` takes over a warehouse of many small blocks: names and sizes, and contents.

`python -m bench.verification --blocks 100000` makes the warehouse in a temporary directory and prints seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import insert

from kilonova.catalog import channel_registry, channel_store, codec, tables
from kilonova.catalog.database import Catalog
from kilonova.catalog.manifest import Manifest, digest, manifest_to_text
from kilonova.model.block import Block, BlockName, Delta, Statistics, StoredFile
from kilonova.model.channel import Channel
from kilonova.model.damage import manifest_file, marker_file
from kilonova.model.encoding import Append
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.service.fsck import verify
from kilonova.warehouse.storage import Storage

SCHEMA = Schema.of(("id", "bigint"), ("note", "string"))
SIZE = 4096


def fill(catalog: Catalog, root: Path, count: int) -> None:
    """Make a channel of so many blocks, each a file, a manifest and a mark."""
    rows, blocks = [], []
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [Channel(name="logs", schema=SCHEMA, encoding=Append())], "bench")
        channel = channel_store.channel_id(tx, "logs")
        run = {"kind": "ingest", "state": "succeeded", "tasks": [], "owner": "bench", "started": tx.now}
        number = tx.connection.execute(insert(tables.run).values(**run, lease_until=tx.now)).inserted_primary_key
        assert number is not None
        for point in range(1, count + 1):
            name, content = BlockName(point, f"{point:012x}"), os.urandom(SIZE)
            place = root / name.directory
            place.mkdir()
            file = StoredFile(
                name=f"part-00000-{name.suffix}-c000.zstd.parquet",
                size=SIZE,
                rows=100,
                checksum=hashlib.sha256(content).hexdigest(),
            )
            block = Block(
                number=point,
                kind=Delta(point - 1, point),
                schema=SCHEMA,
                encoding=Append(),
                columns=SCHEMA,
                buckets=0,
                statistics=Statistics(rows=100, bytes=SIZE, files=1, removals=0),
                suffix=name.suffix,
                stored=(file,),
            )
            version = Version.source("logs", point)
            text = manifest_to_text(
                Manifest(catalog="bench", channel="logs", task=None, run=1, point=point, version=version, block=block)
            )
            (place / file.name).write_bytes(content)
            (place / (manifest := manifest_file(digest(text)))).write_text(text)
            (place / str(marker_file(manifest))).touch()
            blocks.append(replace(block, manifest=digest(text)))
            rows.append(
                {
                    "id": point,
                    "run_id": number[0],
                    "state": channel_store.LIVE,
                    "schema": codec.schema_to_json(SCHEMA),
                    "encoding": codec.encoding_to_json(Append()),
                    "columns": codec.schema_to_json(SCHEMA),
                    "buckets": 0,
                    "rows": 100,
                    "bytes": SIZE,
                    "files": 1,
                    "removals": 0,
                    "suffix": name.suffix,
                    "stored": codec.stored_to_json(block.stored or ()),
                }
            )
        tx.connection.execute(insert(tables.block), rows)
        for block in blocks:
            channel_store.place(tx, channel, block)


def main() -> None:
    """Make the warehouse, verify it, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=100_000)
    count = parser.parse_args().blocks
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "warehouse"
        storage, catalog = Storage(str(root)), Catalog(f"sqlite:///{folder}/catalog.db")
        storage.create()
        catalog.create()
        began = time.monotonic()
        fill(catalog, root, count)
        print(f"{datetime.now(UTC):%H:%M:%S} made {count} blocks in {time.monotonic() - began:.1f} s")
        for checksums in (False, True):
            began = time.monotonic()
            found = verify(catalog, storage, checksums=checksums)
            assert (found.blocks, found.damaged, found.unmarked) == (count, (), ())
            what = "names, sizes and contents" if checksums else "names and sizes"
            print(f"{what}: {time.monotonic() - began:.1f} s, {found.bytes / 2**20:.0f} MB")
        catalog.close()


if __name__ == "__main__":
    main()
