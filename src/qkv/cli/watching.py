"""``qkv check --watch``: a report each time that the candidate is saved, until Ctrl-C."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

from qkv.adapters.process import HostProcess
from qkv.adapters.targets import existing_file, split_target
from qkv.cli.ending import RECEIVED
from qkv.cli.imports import files_behind
from qkv.errors import CandidateError
from qkv.report import Report
from qkv.request import Request

PAUSE = 50
"""Milliseconds without a change after which a save is done, and in which nothing new is looked for."""


def keep_judging(
    request: Request, judge: Callable[[HostProcess], Report], show: Callable[[Report], None], *, quiet: bool
) -> NoReturn:
    """Nothing; judges and shows the report, and does so again whenever the candidate's code has changed.

    Each run has a process of its own, so nothing of an earlier one is left. The next one is started ahead and has
    imported the framework by the time that the file is saved.

    Args:
        request: what is asked; its target is a file.
        judge: gives the report, of a candidate that this process holds.
        show: prints it.
        quiet: whether stdout is for reports alone, so that all else goes to stderr.

    Raises:
        click.UsageError: the target is no Python file, or there is none.
    """
    file = _file_of(request)

    def say(doing: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S}  {doing} {file.name}", err=quiet)

    def started(*ahead: str) -> HostProcess:
        return HostProcess(time_limit=request.time_limit, memory_limit=request.memory_limit, ahead=ahead).start()

    host, framework = started(), ""
    try:
        while True:
            saves = _saves(file)
            next(saves)  # from here on no save is missed
            linecache.clearcache()
            if not quiet:
                click.clear()
            say("checking")
            report = judge(host)
            show(report)
            if RECEIVED:
                raise KeyboardInterrupt
            framework = report.candidate.framework or framework
            host = started(framework) if framework else started()
            say("waiting for changes to")
            next(saved for saved in saves if saved and file.is_file())
    finally:
        host.close()


def _file_of(request: Request) -> Path:
    try:
        return existing_file(split_target(request.to_open)[0])
    except CandidateError as error:
        raise click.UsageError(f"--watch: {error.message}; {error.hint or 'give a file'}") from None


def _saves(file: Path) -> Iterator[bool]:
    """Whether the file, or one that it imports, has been written; tells again and again.

    Folders are watched and not files: editors write a new file and give it the old one's name.
    """
    from watchfiles import watch

    files = {str(place) for place in files_behind(file)}
    folders = {folder for place in files if (folder := Path(place).parent).is_dir()}
    for changes in watch(
        *folders, watch_filter=None, step=PAUSE, rust_timeout=PAUSE, yield_on_timeout=True, recursive=False
    ):
        yield any(path in files for _, path in changes)
