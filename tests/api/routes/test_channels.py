from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from kilonova.model.encoding import Changes, Upsert
from kilonova.service.project import Project, open_project
from tests.catalog.building import ingested
from tests.fakes import Prompt
from tests.service.writing import Writing, wrote
from tests.shop import api


def test_a_channel_is_shown_with_its_newest_point(client: TestClient, shop: Project) -> None:
    assert client.get("/api/v1/channels/clicks").json()["point"] == 0
    ingested(shop.catalog, "clicks")
    shown = client.get("/api/v1/channels/clicks").json()
    assert (shown["point"], shown["rows"], shown["blocks"], shown["reserved"]) == (1, 1, 1, 0)
    assert shown["columns"] == {"user": "string"}
    assert (shown["writers"], shown["several_writers"], shown["sequence_by"]) == ([], False, None)
    assert shown["retention"] is None
    assert (shown["on_new_column"], shown["rename"], shown["defaults"]) == ("quarantine", {}, {})
    assert shown["added_columns"] == []
    assert client.get("/api/v1/channels/per_user").json()["writers"] == ["per_user"]


def test_the_number_of_rows_is_that_of_the_relation_or_unknown(client: TestClient, shop: Project) -> None:
    def shown() -> tuple[object, ...]:
        found = client.get("/api/v1/channels/clicks").json()
        return found["rows"], found["max_rows"], found["block_rows"]

    assert shown() == (0, 0, 0)
    wrote(shop.catalog, {"clicks": Writing(rows=4, base=True)})
    wrote(shop.catalog, {"clicks": Writing(rows=3, encoding=Changes(), removals=2)})
    assert shown() == (3, 3, 7)
    wrote(shop.catalog, {"clicks": Writing(rows=5, encoding=Upsert(("user",)))})
    assert shown() == (None, 8, 12)


def test_channels_come_page_by_page(client: TestClient) -> None:
    first = client.get("/api/v1/channels?limit=1")
    assert [item["name"] for item in first.json()] == ["clicks"]
    assert first.headers["Link"] == '</api/v1/channels?limit=1&after=clicks>; rel="next"'
    second = client.get(first.links["next"]["url"])
    assert [item["name"] for item in second.json()] == ["per_user"]
    assert "Link" not in second.headers
    assert client.get("/api/v1/channels?after=zzz").json() == []


@pytest.fixture
def left_to_workers(shop: Project, prompt: Prompt) -> Iterator[TestClient]:
    """A client of a server that does not read rows itself."""
    with open_project(shop.directory, sizes={"local_check_max": 0}) as project:
        yield TestClient(api(prompt, project), base_url="http://localhost")


def test_rows_come_as_json_or_arrow(left_to_workers: TestClient) -> None:
    client = left_to_workers
    answer = client.get("/api/v1/channels/clicks/rows")
    assert answer.headers["kilonova-point"] == "7"
    assert answer.json() == [{"user": "ann"}, {"user": "bob"}]
    stream = client.get("/api/v1/channels/clicks/rows?format=arrow").content
    assert pa.ipc.open_stream(stream).read_all().to_pydict() == {"user": ["ann", "bob"]}


def test_the_worker_receives_the_requested_range_of_rows(
    left_to_workers: TestClient, prompt: Prompt, shop: Project
) -> None:
    for _ in range(3):
        ingested(shop.catalog, "clicks")
    left_to_workers.get("/api/v1/channels/clicks/rows?at=3&since=1&offset=20&limit=10")
    [(what, arguments)] = prompt.asked
    assert what == "page"
    assert {**arguments, "file": ""} == {
        "channel": "clicks", "file": "", "at": 3, "since": 1, "offset": 20, "limit": 10,
    }  # fmt: skip


def test_rows_go_in_by_upload(client: TestClient, prompt: Prompt) -> None:
    answer = client.post("/api/v1/channels/clicks/blocks?format=csv&option=sep=;&option=comment=", content=b"user\nann")
    assert answer.json() == {"run": 3, "repeated": False, "malformed": 0}
    assert prompt.sent == [b"user\nann"]
    [(_, arguments)] = prompt.asked
    assert (arguments["format"], arguments["options"]) == ("csv", {"sep": ";", "comment": ""})
    wrong = client.post("/api/v1/channels/clicks/blocks?option=sep", content=b"")
    assert (wrong.status_code, wrong.json()["error"]) == (422, "settings")
    wrong = client.post("/api/v1/channels/clicks/blocks?format=csv&option=heeder=true", content=b"")
    assert (wrong.status_code, wrong.json()["hint"]) == (422, "Did you mean header?")


@pytest.mark.parametrize(
    ("query", "headers", "format"),
    [
        ("", {}, "json"),
        ("", {"Content-Type": "application/octet-stream"}, "json"),
        ("", {"Content-Type": "application/json"}, "json"),
        ("", {"Content-Type": "application/x-ndjson"}, "json"),
        ("", {"Content-Type": "Text/CSV; charset=utf-8"}, "csv"),
        ("", {"Content-Type": "application/vnd.apache.parquet"}, "parquet"),
        ("?format=csv", {"Content-Type": "application/x-www-form-urlencoded"}, "csv"),
        ("?name=day.CSV", {"Content-Type": "application/x-www-form-urlencoded"}, "csv"),
        ("", {"Content-Disposition": 'attachment; filename="day.parquet"'}, "parquet"),
    ],
)
def test_the_format_of_an_upload_is_the_one_that_is_sent(
    client: TestClient, prompt: Prompt, query: str, headers: dict[str, str], format: str
) -> None:
    answer = client.post(f"/api/v1/channels/clicks/blocks{query}", content=b"{}", headers=headers)
    assert answer.json() == {"run": 3, "repeated": False, "malformed": 0}
    assert [arguments["format"] for _, arguments in prompt.asked] == [format]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("", "application/x-www-form-urlencoded"),
        ("", "application/pdf"),
        ("?name=day.xlsx", "application/octet-stream"),
        ("?format=csv", "multipart/form-data; boundary=x"),
    ],
)
def test_an_upload_of_an_unknown_format_is_refused(client: TestClient, prompt: Prompt, query: str, kind: str) -> None:
    answer = client.post(f"/api/v1/channels/clicks/blocks{query}", content=b"x", headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]) == (415, "media-type")
    assert answer.json()["hint"]
    assert prompt.asked == []


@pytest.mark.parametrize(
    ("query", "headers", "name"),
    [
        ("", {}, "upload.json"),
        ("?name=monday.json", {}, "monday.json"),
        ("?name=..%2F..%2Fmonday.json%07", {}, "monday.json?"),
        ("", {"Content-Disposition": "attachment; filename*=UTF-8''caf%C3%A9.json"}, "café.json"),
    ],
)
def test_an_upload_has_a_name(
    client: TestClient, prompt: Prompt, query: str, headers: dict[str, str], name: str
) -> None:
    client.post(f"/api/v1/channels/clicks/blocks{query or '?'}&format=json", content=b"{}", headers=headers)
    assert [arguments["name"] for _, arguments in prompt.asked] == [name]


@pytest.mark.parametrize("body", [b"", b" \n\t\r\n"])
def test_an_upload_of_nothing_is_refused(client: TestClient, prompt: Prompt, body: bytes) -> None:
    answer = client.post("/api/v1/channels/clicks/blocks", content=body)
    assert (answer.status_code, answer.json()["problem"]) == (422, "the body is empty")
    assert prompt.asked == []


def test_an_array_of_json_is_taken_as_lines_with_its_digits(client: TestClient, prompt: Prompt) -> None:
    bodies = {
        b'[{"n": 1.10, "t": "a\\n]"},\r\n  {"n":\n 12345678901234567890.5}\n]\n': (
            b'{"n": 1.10, "t": "a\\n]"}\n{"n":  12345678901234567890.5}\n'
        ),
        b"\xef\xbb\xbf [] ": b"",
        b'{"n": [1]}\n{"n": []}': b'{"n": [1]}\n{"n": []}',
    }
    for body in bodies:
        assert client.post("/api/v1/channels/clicks/blocks", content=body).status_code == 200
    assert prompt.sent == list(bodies.values())


@pytest.mark.parametrize(
    "body", [b"[", b'[{"a": 1}', b'[{"a": 1} {"a": 2}]', b'[{"a": 1},]', b"[1]", b"[{}] x", b"[\xff]"]
)
def test_an_array_that_is_not_of_objects_is_refused(client: TestClient, prompt: Prompt, body: bytes) -> None:
    answer = client.post("/api/v1/channels/clicks/blocks", content=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "unreadable")
    assert answer.json()["problem"].startswith("the array is not JSON: ")
    assert prompt.asked == []


def test_rows_go_in_by_reference(client: TestClient) -> None:
    assert client.post("/api/v1/channels/clicks/ingests?source=/some.csv").json() == {
        "run": 3,
        "repeated": False,
        "malformed": 0,
    }
    missing = client.post("/api/v1/channels/clicks/ingests?source=/nowhere.csv")
    assert (missing.status_code, missing.json()["error"]) == (422, "unreadable")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("{place}/in/a.csv", 200),
        ("file://{place}/in", 200),
        ("s3://data/in/a.csv", 200),
        ("{place}/in/../kilonova.toml", 403),
        ("{place}/in/link/kilonova.toml", 403),
        ("{place}/inside.csv", 403),
        ("/etc/passwd", 403),
        ("file:///etc/passwd", 403),
        ("s3://data/in/%252E%252E/out", 403),
        ("s3://other/in/a.csv", 403),
        ("http://169.254.169.254/latest", 403),
        ("simplecache::s3://data/in/a.csv", 403),
        ("http://", 403),
    ],
)
def test_files_are_read_at_listed_places_alone(shop: Project, source: str, status: int) -> None:
    (shop.directory / "in").mkdir()
    (shop.directory / "in" / "link").symlink_to(shop.directory)
    listed = {"sources": [str(shop.directory / "in"), "s3://data/in/"]}
    with open_project(shop.directory, serve=listed) as project:
        client = TestClient(api(Prompt(), project), base_url="http://localhost")
        place = source.format(place=shop.directory)
        assert client.post(f"/api/v1/channels/clicks/ingests?source={place}").status_code == status


def test_formats_that_are_not_of_files_are_read_if_they_are_listed(client: TestClient, shop: Project) -> None:
    asked = "/api/v1/channels/clicks/ingests?source=/some&format="
    assert [client.post(asked + format).status_code for format in ("orc", "jdbc", "org.apache.X")] == [200, 403, 403]
    with open_project(shop.directory, serve={"sources": ["/some"], "formats": ["avro"]}) as project:
        other = TestClient(api(Prompt(), project), base_url="http://localhost")
        assert [other.post(asked + format).status_code for format in ("avro", "jdbc")] == [200, 403]


@pytest.mark.parametrize("option", ["path=/etc", "Paths=x", "fs.s3a.endpoint=evil", "spark.x=1"])
def test_options_say_how_files_are_read_and_not_which(client: TestClient, option: str) -> None:
    for place in ("blocks?", "ingests?source=/some&"):
        answer = client.post(f"/api/v1/channels/clicks/{place}option={option}", content=b"")
        assert (answer.status_code, answer.json()["error"]) == (422, "settings")


@pytest.mark.parametrize("sent", ["monday", '"monday"'])
def test_an_ingest_is_named_by_a_header(client: TestClient, prompt: Prompt, sent: str) -> None:
    headers = {"Idempotency-Key": sent}
    for body in (b"{}", b"{}", b"[]"):
        assert client.post("/api/v1/channels/clicks/blocks", content=body, headers=headers).status_code == 200
    client.post("/api/v1/channels/clicks/ingests?source=/some.csv", headers=headers)
    assert {arguments["idempotency_key"] for _, arguments in prompt.asked} == {"monday"}
    first, second, other, _ = (arguments.get("content_digest") for _, arguments in prompt.asked)
    assert first == second != other


@pytest.mark.parametrize("sent", ["", "x" * 256, "a\tb"])
def test_a_name_that_cannot_be_is_refused_before_the_rows_are_taken(
    client: TestClient, prompt: Prompt, sent: str
) -> None:
    for place in ("blocks", "ingests?source=/some.csv"):
        answer = client.post(f"/api/v1/channels/clicks/{place}", content=b"", headers={"Idempotency-Key": sent})
        assert (answer.status_code, answer.json()["error"]) == (422, "settings")
    assert prompt.asked == []


def test_what_is_too_large_is_refused_before_it_is_sent(client: TestClient, prompt: Prompt) -> None:
    sent = 0

    def body() -> object:
        nonlocal sent
        for _ in range(20):
            sent += 1
            yield b" " * (1 << 18)

    told = client.post("/api/v1/channels/clicks/blocks", content=body(), headers={"Content-Length": str(5 << 20)})  # type: ignore[arg-type]
    assert (told.status_code, told.json()["error"]) == (413, "large")
    untold = client.post("/api/v1/channels/clicks/blocks", content=body())  # type: ignore[arg-type]
    assert (untold.status_code, untold.json()["error"]) == (413, "large")
    assert "larger than 1 MB" in untold.json()["problem"]
    assert prompt.asked == []


def test_rows_are_exported_to_where_the_server_can_write(client: TestClient, prompt: Prompt) -> None:
    assert client.post("/api/v1/channels/clicks/exports?target=/out&format=csv&since=1").status_code == 200
    [(what, arguments)] = prompt.asked
    assert (what, arguments["target"], arguments["format"], arguments["since"]) == ("export", "/out", "csv", 1)


@pytest.mark.parametrize("path", ["", "/rows"])
def test_a_missing_channel_is_reported_as_not_found(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/v1/channels/click{path}")
    assert (answer.status_code, answer.json()["hint"]) == (404, "Did you mean clicks?")
    assert client.post("/api/v1/channels/click/blocks", content=b"x" * (9 << 20)).status_code == 404


def test_a_channel_is_dropped_unless_it_is_read(client: TestClient, shop: Project) -> None:
    assert client.delete("/api/v1/channels/clicks").json()["error"] == "declaration"
    assert client.delete("/api/v1/channels/per_user").json() == {"tasks": ["per_user"]}
    assert client.delete("/api/v1/channels/clicks").json() == {"tasks": []}
    assert shop.reader.channels() == []
    assert client.get("/api/v1/bindings/per_user").status_code == 404


def test_garbage_is_listed_before_it_is_deleted(client: TestClient, shop: Project) -> None:
    ingested(shop.catalog, "clicks")
    ingested(shop.catalog, "clicks", base=True)
    would = client.post("/api/v1/gc?dry_run=true").json()
    assert [(block["channel"], block["held_by"] is None) for block in would["looked_at"]] == [
        ("clicks", True), ("clicks", False),
    ]  # fmt: skip
    assert would["blocks"] == 1
    assert client.post("/api/v1/gc?channel=per_user").json()["blocks"] == 0
    done = client.post("/api/v1/gc?channel=clicks").json()
    assert (done["blocks"], done["deleted"], len(done["looked_at"])) == (1, 1, 1)
    assert client.post("/api/v1/gc?channel=click").status_code == 404
