"""All commands. Each is one module; it is imported when it is called, so that ``--help`` stays quick."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

import click

COMMANDS = {
    "check": "is this attention right? if not: where, which fault, and the repair",
    "demo": "a wrong attention being named, with its report",
    "explain": "the code line by line: what each makes, in which shape, right or wrong",
    "faults": "the faults that are known, and what each does",
    "identify": "which attention is this? read from outside, without any spec",
    "mask": "a mask as a picture, and how much of it is computed",
    "plan": "how qkv.attend computes a call: what it skips, which kernel, and why",
    "shapes": "the shape of every stage, before anything runs",
    "show": "attention weights to look at: of a dump, a candidate, a language model",
    "spec": "a spec file, a Hugging Face config or flags as one sentence",
    "walk": "the article as a page, step by step, on your own sentence or numbers",
}
"""Every command with its line of help. The command ``x`` is ``qkv.cli.x.command``."""


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"qkv.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, Any]:
        """The command, or an error that names the nearest one."""
        from difflib import get_close_matches

        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = get_close_matches(name, COMMANDS, n=1)
            if name.partition(":")[0].endswith(".py"):
                ctx.fail(f"{name!r} is no command. To judge a file: qkv check {name}")
            ctx.fail(f"no command {name!r}. " + (f"Did you mean {close[0]!r}?" if close else "See qkv --help"))
        return super().resolve_command(ctx, args)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("qkv"), "--version", message="qkv %(version)s")
def group() -> None:
    """Tell whether an attention is right, and when it is not, name the fault.

    \b
    qkv check my_attention.py            judge the attention in a file
    qkv check my_attention.py:Name       one of several
    qkv check kernel.py:f --causal --heads 6 --kv-heads 2 --layout BTHD
    """  # noqa: D301 - click wants the character itself, which a raw string has not
