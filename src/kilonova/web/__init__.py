"""Web page: displays a project and controls it."""
