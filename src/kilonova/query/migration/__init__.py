"""Migrations of stored relations whose query has changed; see `kilonova.query.migration.derivation`."""
