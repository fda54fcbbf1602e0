"""The routes of the HTTP API: one module per resource, each with its response models."""
