"""``qkv faults``: the catalogue, or one entry of it."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import click

from qkv.cli.ending import put
from qkv.errors import nearest


@click.command("faults")
@click.argument("name", metavar="[ID]", required=False)
def command(name: str | None) -> None:
    """List the faults that are known, or explain one."""
    from qkv.faults import CATALOGUE, GRADIENT_FAULTS, LENGTH_FAULTS
    from qkv.scripts.slips import SCRIPT_SLIPS

    known: dict[str, Any] = {**CATALOGUE, **LENGTH_FAULTS, **GRADIENT_FAULTS, **SCRIPT_SLIPS}
    if name is None:
        put("".join(f"{entry.id:32}{entry.stage:10}{entry.title}\n" for entry in known.values()))
        return
    if name not in known:
        clause = nearest(name, known)
        raise click.UsageError(
            f"no fault is called {name!r}; " + (clause if clause.endswith("?") else "qkv faults lists them all")
        )
    entry = known[name]
    text = f"{entry.id}: {entry.title} (stage {entry.stage})\n\n{entry.explanation}\n\n"
    text += f"write instead:\n{indent(entry.repair.strip(), '    ')}\n"
    if name not in SCRIPT_SLIPS and entry.needs:
        text += f"\ninvisible with: {', '.join(need.absent for need in entry.needs)}\n"
    put(text)
