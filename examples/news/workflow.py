"""Unique articles from a news feed: Figure 1 of the Nova paper.

    articles ──┬── site_templates
               │        │
               └────── tagged ── shingled ── dedupe ──┬── unique_articles
                                               │      │
                                               └── hashes (those seen before)

Two articles are duplicates if their main content is the same, whatever their sites put around it. The
templates of the sites change slowly: `site_templates` runs on a schedule of its own, over all articles. The
other tasks run for every batch of articles, on nothing but the new ones.
"""

from pyspark.sql import functions as F

import kilonova as kn

wf = kn.Workflow("news")

wf.channel("articles", "id bigint, site string, published timestamp, body string")
wf.channel("unique_articles", "id bigint, site string, published timestamp, main string")
wf.channel("hashes", "hash bigint, id bigint", key="hash")


@wf.task(schema="site string, line string", key=("site", "line"))
def site_templates(articles: kn.All) -> kn.Base:
    """The lines that more than half of a site's articles have in common."""
    lines = articles.select("site", F.explode(F.array_distinct(F.split("body", "\n"))).alias("line"))
    seen = lines.groupBy("site", "line").agg(F.count("*").alias("articles_with_line"))
    sizes = articles.groupBy("site").agg(F.count("*").alias("articles"))
    common = seen.join(sizes, "site").where("articles > 1 and 2 * articles_with_line > articles")
    return common.select("site", "line")


@wf.task(schema="id bigint, site string, published timestamp, main string, template string")
def tagged(articles: kn.New, site_templates: kn.All) -> kn.Delta:
    """Each article taken apart into its main content and its site's template."""
    templates = site_templates.groupBy("site").agg(F.collect_set("line").alias("known"))
    lines = F.split("body", "\n")
    known = F.coalesce("known", F.array().cast("array<string>"))
    return articles.join(templates, "site", "left").select(
        "id",
        "site",
        "published",
        F.array_join(F.filter(lines, lambda line: ~F.array_contains(known, line)), "\n").alias("main"),
        F.array_join(F.filter(lines, lambda line: F.array_contains(known, line)), "\n").alias("template"),
    )


@wf.task(schema="id bigint, site string, published timestamp, main string, hash bigint")
def shingled(tagged: kn.New) -> kn.Delta:
    """Each article with a digest of its main content, by shingling (Broder, 1997).

    A shingle is four words in a row. Of the shingles' hashes the smallest are a random sample of the text,
    the same sample for the same text, however it is wrapped, spelt in capitals or punctuated. One would do
    for equal texts; four together keep apart two that merely share a phrase.
    """
    words = F.filter(F.split(F.lower("main"), r"[^\p{L}\p{N}]+"), lambda word: word != "")
    starts = F.sequence(F.lit(1), F.greatest(F.size("words") - 3, F.lit(1)))
    shingles = F.transform(starts, lambda start: F.xxhash64(F.array_join(F.slice("words", start, 4), " ")))
    sample = F.slice(F.array_sort(F.array_distinct(shingles)), 1, 4)
    return tagged.withColumn("words", words).select("id", "site", "published", "main", F.xxhash64(sample).alias("hash"))


@wf.task(writes=("unique_articles", "hashes"))
def dedupe(shingled: kn.New, hashes: kn.All) -> kn.Delta:
    """The articles whose hash has not been seen; the smallest id wins where several arrive together."""
    article = F.struct("id", "site", "published", "main")
    first = shingled.groupBy("hash").agg(F.min(article).alias("article"))
    unseen = first.join(hashes, "hash", "left_anti")
    return unseen.select("article.*"), unseen.select("hash", "article.id")
