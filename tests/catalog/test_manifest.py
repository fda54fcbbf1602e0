"""Manifests of blocks: texts that say all that the catalog does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.catalog.manifest import Manifest, digest, manifest_from_text, manifest_to_text
from kilonova.errors import CatalogError
from kilonova.model.block import Base, BlockName, Delta, External, FileGroup, StoredFile
from kilonova.model.encoding import Append, Changes, Increment, Upsert
from kilonova.model.version import Version
from kilonova.model.watched_file import Fingerprint
from tests.catalog.building import SCHEMA, a_block

STORED = st.lists(
    st.builds(
        StoredFile, name=st.text(min_size=1), size=st.integers(0), rows=st.integers(0), checksum=st.just("c0ffee")
    ),
    max_size=3,
).map(tuple)
BLOCKS = st.builds(
    lambda kind, encoding, files, external: replace(
        a_block(BlockName(7, "c0ffee"), kind, encoding=encoding), stored=files, external=external
    ),
    st.sampled_from([Base(1), Base(9), Delta(0, 1), Delta(8, 9)]),
    st.sampled_from([Append(), Upsert(("id",)), Changes(("id",)), Increment(("id",), ("n",))]),
    st.none() | STORED,
    st.none()
    | st.just(
        External(
            format="csv",
            options=(("header", "true"),),
            groups=(FileGroup(columns=SCHEMA, files=(("file:/a", Fingerprint(3, None, "t")),)),),
        )
    ),
)


def a_manifest(block: object) -> Manifest:
    return Manifest(
        catalog="c1",
        channel="größe",
        task=None,
        run=3,
        point=9,
        version=Version.source("größe", 9),
        block=block,  # type: ignore[arg-type]
    )


@given(BLOCKS)
def test_a_manifest_gives_back_what_it_was_made_of(block: object) -> None:
    manifest = a_manifest(block)
    text = manifest_to_text(manifest)
    found = manifest_from_text(text)
    assert replace(found, block=replace(found.block, manifest=None)) == manifest
    assert found.block.manifest == digest(text)
    assert manifest_to_text(found) == text


def test_what_is_no_manifest_is_refused() -> None:
    text = manifest_to_text(a_manifest(a_block(1, Base(1))))
    for wrong in ("", "[]", "{}", text[:-20], json.dumps(json.loads(text) | {"schema": None})):
        with pytest.raises(CatalogError, match="manifest"):
            manifest_from_text(wrong)
    with pytest.raises(CatalogError, match="unknown format 2"):
        manifest_from_text(json.dumps(json.loads(text) | {"format": 2}))
