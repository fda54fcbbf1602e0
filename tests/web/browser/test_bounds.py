"""Bounds on the page of their channel: a gauge for each, and forms that change them."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import expect

from tests.service.writing import Writing, wrote
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site


def test_a_bound_is_set_seen_and_removed(site: Site, visit: Visitor) -> None:
    site.project.set_bound("per_user", timedelta(seconds=1), "clicks")
    visit.expected.append("422")
    page = visit(site.address)
    page.goto("/channels/per_user")
    gauges, form = page.locator("#bounds .gauge"), page.locator("form:has(input[name=limit])")
    expect(gauges).to_have_count(1)
    expect(gauges).to_contain_text("Staleness along clicks›per_user")
    expect(gauges).to_have_class(re.compile("is-kept"))
    for _ in range(2):
        wrote(site.project.catalog, {"clicks": Writing()})
    page.wait_for_timeout(1000)
    page.reload()
    expect(gauges).to_have_class(re.compile("is-violated"))
    expect(gauges).to_contain_text("exceeded by")
    page.locator("input[name=limit]").fill("2 days")
    form.locator("select").select_option("")
    form.locator("button").click()
    expect(gauges).to_have_count(2)
    expect(gauges.first).to_contain_text("Inconsistency")
    assert [each.bound.limit for each in site.project.bounds()] == [timedelta(days=2), timedelta(seconds=1)]
    page.locator("#bounds button", has_text="Remove").first.click()
    page.get_by_role("button", name="Yes").click()
    expect(gauges).to_have_count(1)
    page.locator("input[name=limit]").fill("-1 day")
    form.locator("button").click()
    expect(page.locator(".notice.bad")).to_contain_text("negative")
