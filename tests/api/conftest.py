"""Fixtures: a project, and its API without a worker."""

from tests.shop import app, client, prompt, shop, shop_as_made

__all__ = ["app", "client", "prompt", "shop", "shop_as_made"]
