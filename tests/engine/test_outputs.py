"""Tasks that write a base to one output and a delta to another."""

from __future__ import annotations

import random

import kilonova as kn
from kilonova.catalog import registry
from kilonova.model.block import Base, Delta
from kilonova.model.task import Production
from kilonova.service.project import Project
from kilonova.testing import count_differences, recompute


def rows(project: Project, channel: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, project.read(channel).collect()))


def kinds(project: Project, channel: str) -> list[type]:
    return [type(block.kind) for block in project.reader.channel(channel).state.blocks]


def test_a_delta_is_written_to_one_output_and_a_base_to_another(project: Project) -> None:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id bigint, item string")
    workflow.channel("prices", "item string, price bigint", key="item")
    workflow.channel("priced", "id bigint, item string, price bigint")
    workflow.channel("tariff", "item string, price bigint")

    @workflow.task(writes=("priced", "tariff"))
    def sell(orders: kn.New, prices: kn.All) -> tuple[kn.Delta, kn.Base]:
        return orders.join(prices, "item").select("id", "item", "price"), prices

    project.apply(workflow)
    with project.catalog.reading() as tx:
        task = registry.tasks(tx, ["sell"])["sell"].task
    assert task.variants[0].productions == (Production.DELTA, Production.BASE)
    assert project.plan(workflow).empty
    spark, chance = project.warehouse.spark, random.Random(7)
    bought: list[tuple[int, str, int]] = []
    for number in range(3):
        prices = {item: chance.randrange(100) for item in ("a", "b")}
        project.ingest("prices", spark.createDataFrame(list(prices.items()), "item string, price bigint"))
        item = chance.choice("ab")
        project.ingest("orders", spark.createDataFrame([(number, item)], "id bigint, item string"))
        project.run()
        bought.append((number, item, prices[item]))
        assert rows(project, "priced") == bought
        assert rows(project, "tariff") == sorted(prices.items())
    assert kinds(project, "priced") == [Base, Delta, Delta]
    assert kinds(project, "tariff") == [Base, Base, Base]
    made = list(recompute(project))
    assert [each.channel for each in made] == ["priced", "tariff"]
    assert all(each.replayed for each in made)
    assert [each.channel for each in made if count_differences(project.read(each.channel), each.rows)] == []
