"""Fixtures: a project."""

from tests.shop import shop, shop_as_made

__all__ = ["shop", "shop_as_made"]
