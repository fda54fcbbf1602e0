from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

import kilonova as kn
from kilonova.service.project import Project
from tests.catalog.building import ingested

BOUND = "/api/v1/channels/per_user/bound"


def test_bounds_are_set_shown_and_removed(client: TestClient, shop: Project) -> None:
    assert client.get("/api/v1/bounds").json() == []
    [made] = client.put(BOUND, params={"limit": "1 day", "path": "clicks"}).json()
    assert (made["channel"], made["path"], made["limit"]) == ("per_user", ["clicks", "per_user"], 86_400)
    assert (made["declared"], made["amount"], made["slack"], made["phase"]) == (None, 0, 86_400, "kept")
    assert len(client.put(BOUND, params={"limit": "0"}).json()) == 2
    ingested(shop.catalog, "clicks")
    inconsistency, staleness = client.get("/api/v1/bounds?channel=per_user").json()
    assert (inconsistency["path"], inconsistency["limit"], inconsistency["end"]) == ([], 0, None)
    assert (staleness["point"], staleness["start"], staleness["end"] is None) == (0, None, False)
    metrics = client.get("/metrics").text
    assert (
        'kilonova_bound_limit_seconds{bound="staleness",channel="per_user",path="clicks›per_user"} 86400.0' in metrics
    )
    assert 'kilonova_bound_violated{bound="inconsistency",channel="per_user",path=""} 0.0' in metrics
    assert [each["path"] for each in client.delete(BOUND).json()] == [["clicks", "per_user"]]
    assert client.post(f"{BOUND}/reset", params={"path": "clicks"}).status_code == 422
    assert client.delete(BOUND, params={"path": "clicks"}).json() == []


def test_the_schedule_of_bounds_says_what_runs_next(client: TestClient, shop: Project) -> None:
    assert client.get("/api/v1/bounds/schedule").json()["steps"] == []
    client.put(BOUND, params={"limit": "1 day", "path": "clicks"})
    ingested(shop.catalog, "clicks")
    found = client.get("/api/v1/bounds/schedule?channel=per_user").json()
    assert [each["task"] for each in found["steps"]] == ["per_user"]
    assert found["bounds"] == ["per_user is at most 1 day behind clicks›per_user"]
    assert found["due"] is not None
    assert client.get("/api/v1/bounds/schedule?channel=clocks").status_code == 404


@pytest.mark.parametrize(
    ("channel", "params", "status", "problem"),
    [
        ("per_user", {"limit": "-1 day"}, 422, "the limit -1 day of a bound is negative"),
        ("per_user", {"limit": "soon"}, 422, "there is no unit 'soon'"),
        ("per_user", {"limit": "1 day", "path": "clocks"}, 422, "there is no path from clocks"),
        ("clicks", {"limit": "1 day"}, 422, "cannot be bounded into which rows are ingested"),
        ("clocks", {"limit": "1 day"}, 404, "there is no such channel"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(
    client: TestClient, channel: str, params: dict[str, str], status: int, problem: str
) -> None:
    answer = client.put(f"/api/v1/channels/{channel}/bound", params=params)
    assert answer.status_code == status, answer.text
    assert problem in answer.json()["problem"]
    assert client.get("/api/v1/bounds").json() == []


def test_a_bound_that_no_variant_keeps_is_refused_with_the_reason(client: TestClient, shop: Project) -> None:
    labels = kn.Workflow("labels")
    labels.channel("pages", "url string")
    labels.channel("sites", "site string")
    labels.channel("labelled", "url string")

    @labels.task(writes=("labelled",))
    def label(pages: kn.New, sites: kn.All) -> kn.Delta:
        raise NotImplementedError

    shop.apply(labels)
    answer = client.put("/api/v1/channels/labelled/bound", params={"limit": "1 week"})
    assert answer.status_code == 422, answer.text
    assert "no variant of the tasks before it can keep this, however fast it runs" in answer.json()["problem"]
    assert "Add a variant that recomputes its output" in answer.json()["hint"]
    assert client.get("/api/v1/bounds").json() == []
