"""Watching: every array operation of code that runs, with the expression it stands in. The contract is `recording`."""

from qkv.adapters.watching.watch import Watch, watching

__all__ = ["Watch", "watching"]
