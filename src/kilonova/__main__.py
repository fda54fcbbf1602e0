"""`python -m kilonova` is the `kilonova` command."""

from kilonova.cli import main

main()
