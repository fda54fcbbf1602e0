"""One run from start to commit: of tasks, of an ingest, of a compaction; and cleaning up after those that died."""
