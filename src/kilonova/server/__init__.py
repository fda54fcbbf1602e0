"""The server: a loop that fires triggers and starts runs, the worker processes that execute them, and the HTTP API."""
