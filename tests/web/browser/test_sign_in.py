"""Signing in and out, and what somebody sees who may only look."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.web.browser.browser import Visitor, landed
from tests.web.browser.sites import Site

PAGES = (
    "/",
    "/channels",
    "/channels/orders_eu",
    "/channels/orders_eu_clean",
    "/tasks",
    "/tasks/orders_eu_clean",
    "/runs",
    "/runs/200",
    "/runs/194",
    "/triggers",
    "/triggers/carts_eu_accounts",
    "/servers",
    "/events",
)


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def signed_in(page: Page, path: str, secret: str) -> None:
    page.goto(path)
    sign_in(page, secret)
    landed(page, path)


def test_a_wrong_token_is_refused_and_a_right_one_remembered(lively: Site, visit: Visitor) -> None:
    secret = lively.project.operator.create_token("ada", "operate")
    page = visit(lively.address)
    visit.expected.append("status of 401")
    page.goto("/runs?state=failed")
    page.wait_for_url("/sign-in?then=%2Fruns%3Fstate%3Dfailed")
    expect(page.locator("#token")).to_be_focused()
    assert page.locator("nav, #live, #find").count() == 0
    sign_in(page, "kn_wrong")
    expect(page.get_by_role("alert")).to_have_text("this is not a valid token.")
    assert page.context.cookies() == []
    sign_in(page, f" {secret} ")
    landed(page, "/runs?state=failed")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/")
    assert page.evaluate("document.cookie") == ""
    expect(page.locator(".who")).to_contain_text("ada operate")
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Workflow")
    assert secret not in page.content()


@pytest.mark.parametrize(
    "then",
    ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example", "elsewhere", "/%09/elsewhere"],
)
def test_signing_in_leads_to_no_other_host(then: str, lively: Site, visit: Visitor) -> None:
    secret = lively.project.operator.create_token("ada", "read")
    page = visit(lively.address)
    page.goto(f"/sign-in?then={then}")
    sign_in(page, secret)
    landed(page, "/")


def test_a_reader_is_offered_no_actions(lively: Site, visit: Visitor) -> None:
    secrets = {role: lively.project.operator.create_token(role, role) for role in ("read", "operate")}
    offered = {}
    for role, secret in secrets.items():
        page = visit(lively.address)
        signed_in(page, "/", secret)
        offered[role] = {}
        for path in PAGES:
            page.goto(path)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            offered[role][path] = page.locator("form[data-action]").count()
    assert set(offered["read"].values()) == {0}
    without = [path for path, count in offered["operate"].items() if not count]
    assert without == ["/", "/channels", "/runs/194", "/servers", "/events"]


def test_a_token_that_is_revoked_is_good_for_nothing_at_the_next_look(lively: Site, visit: Visitor) -> None:
    lively.project.operator.create_token("other", "admin")
    secret = lively.project.operator.create_token("ada", "operate")
    listed, drawn, acting = (visit(lively.address) for _ in range(3))
    visit.expected.append("status of 401")
    for page, path in ((listed, "/events"), (drawn, "/"), (acting, "/tasks/orders_eu_clean")):
        signed_in(page, path, secret)
    lively.project.operator.revoke_token("ada")
    acting.get_by_role("button", name="Run now").click()
    lively.project.pause("orders_eu_clean")
    for page in (listed, drawn, acting):
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert page.context.cookies() == []


def test_who_signs_out_is_out(lively: Site, visit: Visitor) -> None:
    secret = lively.project.operator.create_token("ada", "admin")
    page = visit(lively.address)
    signed_in(page, "/channels", secret)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.context.cookies() == []
    page.goto("/channels")
    page.wait_for_url("/sign-in?then=%2Fchannels")


def test_what_other_pages_ask_for_with_the_cookie_is_refused(lively: Site) -> None:
    secret = lively.project.operator.create_token("ada", "admin")
    cookies = {f"kilonova-{lively.project.catalog.identity()}": secret}
    with httpx2.Client(base_url=lively.address, cookies=cookies) as client:
        for origin, status in (("https://elsewhere.example", 403), ("null", 403), (lively.address, 200)):
            answer = client.post("/api/v1/bindings/orders_eu_clean/pause", headers={"Origin": origin})
            assert answer.status_code == status
        assert client.post("/sign-out", headers={"Origin": "https://elsewhere.example"}).status_code == 403


def test_pages_forbid_what_they_do_not_need(lively: Site) -> None:
    answer = httpx2.get(f"{lively.address}/runs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
