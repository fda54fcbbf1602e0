"""The `kilonova` command: calls `kilonova.service` and renders the results, without logic of its own."""

from kilonova.cli.main import main

__all__ = ["main"]
