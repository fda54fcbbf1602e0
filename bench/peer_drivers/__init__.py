"""Programs that have other tools do the work of a benchmark, each executed by Python where its tool is installed."""
