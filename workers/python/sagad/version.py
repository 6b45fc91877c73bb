"""The version of this package, said to the orchestrator in each Hello."""

__version__ = "0.1.0"
