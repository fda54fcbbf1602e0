from __future__ import annotations

from fastapi.testclient import TestClient

from kilonova.service.project import Project
from tests.catalog.building import ingested


def test_verification_names_what_is_damaged_and_what_mends_it(client: TestClient, shop: Project) -> None:
    nothing = {"blocks": 0, "files": 0, "bytes": 0, "damages": [], "remedies": [], "unreferenced": []}
    assert client.get("/api/v1/verification").json() == nothing
    ingested(shop.catalog, "clicks")  # whose block was never written
    found = client.get("/api/v1/verification?checksums=true").json()
    [damage] = found["damages"]
    assert (damage["channel"], damage["kind"], damage["file"], damage["damage"]) == ("clicks", "Δ0→1", None, "missing")
    [remedy] = found["remedies"]
    assert (remedy["channel"], remedy["automatic"]) == ("clicks", False)
    assert client.get("/api/v1/verification?channel=per_user").json() == nothing
    assert client.get("/api/v1/verification?channel=nothing").status_code == 404
