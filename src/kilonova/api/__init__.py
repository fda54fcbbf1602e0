"""The HTTP API of a project."""
