"""The workflow of the soak test: a task of each kind, over events that only arrive and users that change.

events ─┬─ totals ── summary          amounts to add; a report made anew
        ├─ unique, seen               a task that reads its own output
users ──┴─ named                      a join kept up to date from OLD and NEW
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import kilonova as kn

soak = kn.Workflow("soak")

soak.channel("events", "id string, user int, word string, amount bigint")
soak.channel("users", "user int, name string", key="user")
soak.channel("totals", "user int, n bigint, amount bigint", key="user", encoding=kn.increment("n", "amount"))
soak.channel("named", "id string, name string", encoding="changes")
soak.channel("unique", "word string")
soak.channel("seen", "word string", key="word")
soak.channel("summary", "n bigint, amount bigint")


@soak.task
def totals(events: kn.New) -> kn.Delta:
    return events.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").cast("bigint").alias("amount"))


@soak.task
def summary(totals: kn.All) -> kn.Base:
    return totals.agg(F.sum("n").cast("bigint").alias("n"), F.sum("amount").cast("bigint").alias("amount"))


@soak.task(reads={"arrived": "events", "before": "events", "changed": "users", "now": "users"})
def named(arrived: kn.New, before: kn.Old, changed: kn.Changes, now: kn.All) -> kn.Delta:
    fresh = arrived.join(now, "user").select("id", "name", F.lit(1).cast("bigint").alias("_weight"))
    renamed = before.join(changed, "user").select("id", "name", "_weight")
    return fresh.unionByName(renamed)


@soak.task(writes=("unique", "seen"))
def unique(events: kn.New, seen: kn.All) -> tuple[kn.Delta, kn.Delta]:
    words: DataFrame = events.select("word").distinct().join(seen, "word", "left_anti")
    return words, words
