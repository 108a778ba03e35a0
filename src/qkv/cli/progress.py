"""Progress: a bar on stderr for work that takes long, where somebody may be looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(words: str) -> Iterator[Callable[[float], None]]:
    """A function that is told the share of the work done since it was told last. Without a terminal nothing shows."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(words, total=None)  # it moves to and fro until the first share is done
        yield lambda share: bar.update(task, total=1.0, advance=share)
