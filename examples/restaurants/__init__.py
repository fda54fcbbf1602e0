"""Restaurants extracted from web pages, by logic that keeps changing (logic evolution, section 1.3)."""
