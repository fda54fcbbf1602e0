from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest

from kilonova.errors import InputError, PayloadTooLarge
from kilonova.scheduler.zip_upload import unpack_zip


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return made.getvalue()


def unpacked(place: Path, content: bytes, most: int = 1 << 20) -> dict[str, bytes]:
    file, target = place / "sent.zip", place / "inner" / "target"
    target.mkdir(parents=True)
    file.write_bytes(content)
    try:
        unpack_zip(file, target, most)
    finally:
        outside = [path for path in place.rglob("*") if path.is_file() and target not in path.parents]
        assert outside == [file]
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_files_and_folders_come_out_as_they_went_in(tmp_path: Path) -> None:
    found = unpacked(tmp_path, zipped(("models/", b""), ("models/a.sql", b"SELECT 1"), ("b.py", b"")))
    assert found == {"models/a.sql": b"SELECT 1", "b.py": b""}


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "..\\evil", "C:\\evil", "a/.."])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="leads out of it"):
        unpacked(tmp_path, zipped(("fine.py", b""), (name, b"x")))


def test_links_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(InputError, match="is a link"):
        unpacked(tmp_path, zipped((link, b"/etc/passwd")))


def test_a_zip_bomb_is_rejected_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = zipped(*((f"{number}", b"0" * (1 << 20)) for number in range(3)))
    assert len(bomb) < 10_000
    with pytest.raises(PayloadTooLarge, match="larger than 2 MB"):
        unpacked(tmp_path, bomb, 2 << 20)
    with pytest.raises(PayloadTooLarge, match="10001 files"):
        unpacked(tmp_path / "other", zipped(*((f"{number}", b"") for number in range(10_001))))


def test_a_zip_that_lies_about_sizes_gives_no_more_than_it_claims(tmp_path: Path) -> None:
    content = zipped(("a", b"0" * 100_000))
    lying = content.replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lying != content
    with pytest.raises(InputError, match="damaged"):
        unpacked(tmp_path, lying)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"import kilonova", zipped(("a", b"x" * 500))[:-30]],
    ids=["empty", "short", "Python", "cut off"],  # a zip has the time in it, and processes must agree on names
)
def test_what_is_no_zip_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="zip"):
        unpacked(tmp_path, content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_entries_and_files_that_are_folders_are_rejected(tmp_path: Path) -> None:
    for number, names in enumerate((("a", "a"), ("a", "a/b"), ("a/b", "a"))):
        with pytest.raises(InputError, match="cannot be unpacked"):
            unpacked(tmp_path / str(number), zipped(*((name, b"x") for name in names)))


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped(("a", b"x")))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        unpacked(tmp_path, bytes(content))
