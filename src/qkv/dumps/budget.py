"""Budget: the time that a search may take."""

from __future__ import annotations

import time


class SpentError(Exception):
    """The time is over."""


class Budget:
    """Time of this thread on a processor, counted from now.

    Args:
        seconds: how much there is.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def check(self) -> None:
        """Nothing.

        Raises:
            Spent: the time is over.
        """
        if time.thread_time() > self._end:
            raise SpentError
