"""Adapters: from a candidate to calls that every other module understands. Only these know a framework."""
