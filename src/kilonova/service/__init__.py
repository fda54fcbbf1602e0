"""Services of Kilonova as functions over a project: the command line and servers contain no decisions.

Modules that need Spark are imported on first use, so that inspecting a project does not start it.
"""
