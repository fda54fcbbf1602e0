"""One warehouse, one catalog: which ones are refused, and which one wins."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kilonova.errors import CatalogError, NotFound, StorageFailed
from kilonova.model.block import BlockName
from kilonova.service.ownership import WarehouseOwner, owner_of, owner_to_text
from kilonova.service.project import Project, open_project
from kilonova.warehouse.storage import OWNER, Storage
from tests.service.writing import Writing, declare, wrote


def a_project(place: Path, catalog: str = "catalog.db") -> Project:
    return open_project(place, catalog=catalog, warehouse="warehouse")


def test_init_says_whose_the_warehouse_is_and_may_be_repeated(tmp_path: Path) -> None:
    with a_project(tmp_path) as project:
        project.create()
        project.create()
        owner = owner_of(Storage(str(tmp_path / "warehouse")))
        assert owner == WarehouseOwner(catalog=project.catalog.identity())
    with a_project(tmp_path) as project:
        project.resources.recover_expired_runs()


def test_a_warehouse_of_another_catalog_is_refused(tmp_path: Path) -> None:
    with a_project(tmp_path) as project:
        project.create()
    with a_project(tmp_path, "other.db") as other:
        with pytest.raises(CatalogError, match=r"belongs to another catalog.*kilonova recover"):
            other.create()
        assert not (tmp_path / "other.db").exists()
        other.catalog.create()  # as a release that did not look has done
        with pytest.raises(CatalogError, match=r"belongs to the catalog .*kilonova recover"):
            other.resources.recover_expired_runs()


def test_a_warehouse_with_blocks_is_refused_to_a_new_catalog(tmp_path: Path) -> None:
    Storage(str(tmp_path / "warehouse")).seal(BlockName(1, "c0ffee"), "{}")
    with a_project(tmp_path) as project:
        with pytest.raises(CatalogError, match=r"blocks of another catalog.*kilonova recover"):
            project.create()
        project.catalog.create()
        with pytest.raises(CatalogError, match=r"blocks of another catalog.*kilonova recover"):
            project.resources.recover_expired_runs()


def test_a_warehouse_of_an_older_release_is_adopted(tmp_path: Path) -> None:
    with a_project(tmp_path) as project:
        project.create()
        declare(project.catalog, "orders")
        wrote(project.catalog, {"orders": Writing()})
    storage = Storage(str(tmp_path / "warehouse"))
    storage.seal(BlockName(1), "{}")
    (tmp_path / "warehouse" / OWNER).unlink()
    with a_project(tmp_path) as project:
        project.resources.recover_expired_runs()
        assert owner_of(storage) == WarehouseOwner(catalog=project.catalog.identity())


def test_a_warehouse_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_project(tmp_path) as project:
        project.create()
        declare(project.catalog, "orders")
        wrote(project.catalog, {"orders": Writing()})
    (tmp_path / "warehouse" / OWNER).unlink()

    def refused(_storage: Storage, _owner: str) -> None:
        raise StorageFailed("the disk is read-only")

    monkeypatch.setattr(Storage, "claim", refused)
    with a_project(tmp_path) as project, pytest.raises(NotFound, match="no log"):
        project.log(1)
    assert not (tmp_path / "warehouse" / OWNER).exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with a_project(tmp_path) as project:
        project.create()
    for text, says in (("{", "cannot be read"), ('{"format": 2}', "unknown format 2")):
        (tmp_path / "warehouse" / OWNER).write_text(text)
        with a_project(tmp_path) as project, pytest.raises(CatalogError, match=says):
            project.resources.recover_expired_runs()


def test_of_many_that_claim_a_warehouse_at_once_one_wins(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    texts = [owner_to_text(WarehouseOwner(catalog=f"{number}")) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda text: (storage.claim(text), storage.owner())[1], texts))
    assert len(set(seen)) == 1
    assert seen[0] in texts
    assert [file.name for file in tmp_path.iterdir()] == [OWNER]


def test_an_object_store_keeps_the_first_claim() -> None:
    storage = Storage("memory://test-ownership")
    storage.create()
    storage.claim("one")
    storage.claim("two")
    assert storage.owner() == "one"
    storage.hand_over("three")
    assert storage.owner() == "three"


def test_a_copied_project_keeps_working(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with a_project(tmp_path / "one") as project:
        project.create()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with a_project(tmp_path / "two") as project:
        project.resources.recover_expired_runs()
