"""Queries that only display the catalog: for pages, the HTTP API and commands. No transaction's decision reads them."""
