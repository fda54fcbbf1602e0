"""Routes of the web page, a module for each resource."""
