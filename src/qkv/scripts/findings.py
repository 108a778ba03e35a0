"""Finding: one thing that is wrong in a script."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.scripts.mixes import Mix


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        fault: its id.
        operation: number of the operation that does it; -1 for none.
        said: what is wrong there, with the script's own names.
        instead: the expression to write in the place of that operation's, with the script's own names; code with a
            comment, or of several lines, where that alone is not it.
        mix: the mix that it spoils; None for none.
        before: a statement to write in front of that line; empty for none.
    """

    fault: str
    operation: int
    said: str
    instead: str
    mix: Mix | None = None
    before: str = ""
