"""Unique articles from a news feed: Figure 1 of the Nova paper."""
