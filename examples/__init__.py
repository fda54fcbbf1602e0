"""Workflows to read, run and take apart."""
