"""What Kilonova costs and what it saves, as ratios measured in one run (see docs/benchmarks.md)."""
