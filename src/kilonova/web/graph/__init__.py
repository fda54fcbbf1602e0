"""Layout and drawing of the workflow graph."""
