"""Version vectors of a channel's points, over the example of logic evolution, 2.5 (Figure 4)."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import gc_roots
from kilonova.cli import render
from kilonova.cli.main import main
from kilonova.schedule.garbage import PlacedBlock, Provenance
from kilonova.service.project import Project

PAGES = "url string, confidence double"


def extraction(least: float) -> kn.Workflow:
    """The task that joins, extracts and filters by confidence, with a variant for new pages."""
    workflow = kn.Workflow("restaurants")
    workflow.channel("place_urls", "url string", key="url")
    workflow.channel("crawled_pages", PAGES, key="url")

    @workflow.task(schema=PAGES, key="url")
    def extracted(place_urls: kn.All, crawled_pages: kn.All) -> kn.Base:
        return crawled_pages.join(place_urls, "url").where(F.col("confidence") >= least)

    @extracted.variant
    def of_new_pages(place_urls: kn.All, crawled_pages: kn.New) -> kn.Delta:
        return crawled_pages.join(place_urls, "url").where(F.col("_deleted") | (F.col("confidence") >= least))

    return workflow


def _check_provenance(project: Project) -> None:
    """A.1: the physical and the logical provenance of B_e([0,2,1]), and of the compacted B_e([0,1,0])."""
    with project.catalog.reading() as tx:
        roots = gc_roots.gc_roots(tx, Provenance.PHYSICAL)
    names = {
        PlacedBlock(name, block.number): f"{name[0]} {block.kind}"
        for name, state in roots.states.items()
        for block in state.blocks
    }
    physical: dict[str, set[str]] = defaultdict(set)
    for read, made in roots.physical:
        physical[names[made]].add(names[read])
    assert physical["e B3"] == {"p B1", "c B1", "c Δ1→2", "c Δ2→3"}
    assert physical["e B2"] == {"e B1", "e Δ1→2"}
    extracted = roots.states["extracted"]
    logical = {point: {str(each) for each in extracted.version(point).inputs()} for point in (2, 3)}
    assert logical == {2: {"place_urls 1", "crawled_pages 2"}, 3: {"place_urls 1", "crawled_pages 3"}}


def test_figure_4_has_the_version_vectors_of_the_paper(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render.out, "width", 200)

    def crawl(*pages: tuple[str, float]) -> None:
        project.ingest("crawled_pages", project.warehouse.spark.createDataFrame(pages, PAGES))

    project.apply(extraction(0.8))
    project.ingest("place_urls", project.warehouse.spark.createDataFrame([("a",), ("b",)], "url string"))
    crawl(("a", 0.9), ("b", 0.85))
    project.run()
    crawl(("b", 0.95))
    project.run()
    project.compact("extracted")
    project.apply(extraction(0.93))
    crawl(("a", 0.91))
    project.run()

    _check_provenance(project)
    found = project.versions("extracted")
    assert [each.name for each in found.ancestors] == ["crawled_pages", "place_urls", "extracted"]
    assert [(each.point, each.components, each.frontier) for each in found.points] == [
        (3, ("3", "1", "1"), True),
        (2, ("2", "1", "0"), False),
        (1, ("1", "1", "0"), False),
    ]
    assert [each.blocks[0][0] for each in found.points] == ["B", "Δ", "B"]
    assert [each.point for each in project.versions("extracted", before=3, limit=1).points] == [2]
    assert {tuple(row) for row in project.read("extracted").collect()} == {("b", 0.95)}

    directory = str(project.directory)
    with pytest.raises(SystemExit):
        main(["-C", directory, "show", "extracted", "--versions"])
    first, _, *lines = capsys.readouterr().out.splitlines()
    named = [
        "point",
        "time",
        "crawled_pages",
        "place_urls",
        "extracted",
        "blocks",
        "frontier",
        "T⁺",
        "T⁻",
        "consistent",
    ]
    assert first.split() == named
    assert [line.split()[3:6] for line in lines if line.strip()] == [["3", "1", "1"], ["2", "1", "0"], ["1", "1", "0"]]
    with pytest.raises(SystemExit):
        main(["-C", directory, "show", "crawled_pages", "--versions", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert [each["components"] for each in shown["points"]] == [["3"], ["2"], ["1"]]
