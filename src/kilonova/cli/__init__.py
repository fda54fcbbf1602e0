"""The `kilonova` command: it asks `kilonova.service` and renders the answer, and decides nothing."""

from kilonova.cli.main import main

__all__ = ["main"]
