"""Declaration API: translates Python functions and annotations into a `kilonova.model` workflow."""
