"""Helpers for testing tasks, and the plain-Python reference that says what *correct* means."""
