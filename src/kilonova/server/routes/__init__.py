"""The routes of the HTTP API: one module per thing that requests are about, each with what its answers look like."""
