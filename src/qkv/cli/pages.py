"""``--html FILE.html``: the answer as one page beside what is printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from qkv.cli.ending import FAILED, put
from qkv.pictures.page_file import is_page, is_plain, write_whole


class PageFile(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A file that a page can be written to; said before the long work begins."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The file.

        Raises:
            click.UsageError: no page can be written there.
        """
        flag, file = param.opts[0] if param else "", Path(value).expanduser()
        # An option that is read before all others, where a command has it.
        force = bool(ctx and ctx.params.get("force"))
        why = _unfit(str(value), file, flag, force=force)
        if why:
            raise click.UsageError(f"{flag} is {str(value)!r}: {why}")
        return file


def _unfit(given: str, file: Path, flag: str, *, force: bool) -> str:
    """Why no page can be written to a file, and what to write instead; empty where one can."""
    if given == "-":
        return f"stdout has the report. Give a file: {flag} report.html"
    if file.is_dir():
        return f"that is a folder. Give a file in it: {flag} {file / 'report.html'}"
    try:
        plain = is_plain(file)
    except OSError as error:  # a link that leads in a circle, a name that is too long
        return f"it can't be written: {error.strerror}. Give another file: {flag} report.html"
    if not plain:
        return f"that is a device or a pipe. Give a file: {flag} report.html"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}. Make it first: mkdir -p {file.parent}"
    if not os.access(file.parent, os.W_OK):
        return f"nothing may be written in {file.resolve().parent}. Give another place: {flag} ~/report.html"
    if file.exists() and not (os.access(file, os.W_OK) and (force or is_page(file))):
        return f"that file is no page of qkv, and is left as it is. Give another name: {flag} report.html"
    return ""


html_option = click.option(
    "--html", metavar="FILE.html", type=PageFile(), help="write the report as one page too, to be opened in a browser"
)


class Unwritten(click.ClickException):
    """A page that could not be written, for all that was known before."""

    exit_code = FAILED


def write_page(file: Path, page: str, form: str) -> None:
    """Nothing; writes the page, all of it or nothing, and says where it is: on stderr where stdout is for programs.

    Raises:
        Unwritten: it can't be written.
    """
    try:
        write_whole(file, page)
    except OSError as error:
        raise Unwritten(f"the page could not be written to {file}: {error.strerror or error}") from None
    if form == "text":
        put(f"  page      {file}\n")
    else:
        click.echo(f"page: {file}", err=True)
