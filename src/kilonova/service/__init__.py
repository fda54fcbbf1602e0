"""What Kilonova does for its users, as functions over a project: the command line and servers decide nothing.

Modules that need Spark are imported when first used, so that looking at a project starts nothing.
"""
