"""A made-up news feed in which it is known which articles are duplicates.

Several sites print stories, each between its own template lines. A story may be printed again by another
site, in the same batch or in a later one: wrapped differently, sometimes in capitals. Ids grow from batch to
batch but are shuffled within one, so that the first of its story is the one with the smallest id, whatever
the order of the rows and wherever the batches are cut.
"""

import json
import random
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2011, 6, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """A row of the feed; `story` is what it is about, which the workflow has to find out."""

    id: int
    site: str
    published: datetime
    body: str
    story: int

    @property
    def json(self) -> str:
        """The article as a line of JSON, without the story."""
        published = self.published.strftime("%Y-%m-%dT%H:%M:%SZ")
        return json.dumps({"id": self.id, "site": self.site, "published": published, "body": self.body})


@dataclass(frozen=True, slots=True)
class Feed:
    """Batches of articles in the order in which they arrive."""

    batches: tuple[tuple[Article, ...], ...]

    def unique(self, after: int | None = None) -> frozenset[int]:
        """The truth: the ids of the articles that are the first of their story, after some of the batches."""
        first: dict[int, int] = {}
        for batch in self.batches[:after]:
            for article in batch:
                first[article.story] = min(article.id, first.get(article.story, article.id))
        return frozenset(first.values())

    def check(self, unique_ids: Iterable[int], after: int | None = None) -> None:
        """Compare the ids in `unique_articles` with the truth.

        Raises:
            AssertionError: an id is missing, is a duplicate's, or occurs twice.
        """
        found = Counter(unique_ids)
        truth = self.unique(after)
        missing, wrong = truth - found.keys(), found.keys() - truth
        twice = {id_ for id_, times in found.items() if times > 1}
        if missing or wrong or twice:
            raise AssertionError(f"{missing=}, {wrong=}, {twice=}")

    def write(self, directory: Path) -> list[Path]:
        """Write a file of JSON lines per batch and return where they are, in order."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = []
        for number, batch in enumerate(self.batches, start=1):
            paths.append(directory / f"articles-{number:03}.json")
            paths[-1].write_text("".join(article.json + "\n" for article in batch))
        return paths


def generate(*, seed: int = 0, batches: int = 5, articles: int = 100, sites: int = 6, copies: float = 0.3) -> Feed:
    """Make a feed up.

    Args:
        seed: equal seeds give equal feeds.
        batches: how many batches.
        articles: how many articles in each.
        sites: how many sites; each needs four articles in the first batch, to give its template away.
        copies: the share of articles that print a known story again.
    """
    if articles < 4 * sites:
        raise ValueError(f"{articles} articles per batch are too few for {sites} sites")
    rng = random.Random(seed)
    names = [f"news{number}.example" for number in range(1, sites + 1)]
    words = _words(rng, 800)
    templates = {name: _template(rng, name, words) for name in names}
    stories: list[list[str]] = []
    printed_by: list[set[str]] = []
    made = []
    for number in range(batches):
        ids = [number * articles + offset for offset in range(1, articles + 1)]
        rng.shuffle(ids)
        batch = []
        for offset, id_ in enumerate(ids):
            site = names[offset % sites]
            known = [story for story, printers in enumerate(printed_by) if site not in printers]
            if known and rng.random() < copies:
                story = rng.choice(known)
            else:
                story = len(stories)
                stories.append([_sentence(rng, words) for _ in range(rng.randint(4, 8))])
                printed_by.append(set())
            printed_by[story].add(site)
            published = START + timedelta(days=number, minutes=rng.randrange(24 * 60))
            body = _print(rng, stories[story], templates[site])
            batch.append(Article(id=id_, site=site, published=published, body=body, story=story))
        made.append(tuple(batch))
    return Feed(tuple(made))


def _words(rng: random.Random, count: int) -> list[str]:
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    made: set[str] = set()
    while len(made) < count:
        made.add("".join(rng.choices(syllables, k=rng.randint(1, 4))))
    return sorted(made)


def _sentence(rng: random.Random, words: list[str]) -> str:
    return " ".join(rng.choices(words, k=rng.randint(8, 14))).capitalize() + "."


def _template(rng: random.Random, site: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The lines that a site puts above and below its stories."""
    above = [f"Welcome to {site}", " | ".join(["Home", *rng.sample(words, 4)])]
    below = [*(_sentence(rng, words) for _ in range(rng.randint(1, 3))), f"All rights reserved, {site}"]
    return above, below


def _print(rng: random.Random, story: list[str], template: tuple[list[str], list[str]]) -> str:
    text = " ".join(story)
    if rng.random() < 0.1:
        text = text.upper()
    above, below = template
    return "\n".join([*above, *textwrap.wrap(text, rng.randint(40, 90)), *below])
