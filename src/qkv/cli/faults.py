"""``qkv faults``: the catalogue, or one entry of it."""

from __future__ import annotations

from textwrap import indent

import click

from qkv.errors import nearest


@click.command("faults")
@click.argument("name", metavar="[ID]", required=False)
def command(name: str | None) -> None:
    """List the faults that are known, or explain one."""
    from qkv.faults import CATALOGUE

    if name is None:
        for entry in CATALOGUE.values():
            click.echo(f"{entry.id:32}{entry.stage:10}{entry.title}")
        return
    if name not in CATALOGUE:
        raise click.UsageError(f"no fault is called {name!r}; {nearest(name, CATALOGUE)}")
    entry = CATALOGUE[name]
    click.echo(f"{entry.id}: {entry.title} (stage {entry.stage})\n\n{entry.explanation}\n")
    click.echo(f"write instead:\n{indent(entry.repair.strip(), '    ')}")
    if entry.needs:
        click.echo(f"\ninvisible with: {', '.join(need.absent for need in entry.needs)}")
