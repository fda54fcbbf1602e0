"""The declaration API: Python functions and annotations become a `kilonova.model` workflow."""
