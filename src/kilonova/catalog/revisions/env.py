"""Alembic entry point: revisions run within the transaction that the catalog has opened."""

from alembic import context

from kilonova.catalog.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
