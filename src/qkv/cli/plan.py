"""``qkv plan``: how `attend` computes a call, which scores are skipped, and which kernel does the rest, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.ending import put
from qkv.cli.mask import LENGTH, position_of
from qkv.errors import QkvError
from qkv.masks.places import position_of_first
from qkv.spec.field_table import LARGEST_SIZE

if TYPE_CHECKING:
    from qkv.compute import Plan

SIZE = click.IntRange(1, LARGEST_SIZE)
DTYPES = ("float32", "float64", "bfloat16", "float16")
HIDDEN = {
    "open": "with nothing hidden",
    "causal": "with the kernel's own causal mask",
    "table": "with a table of what is hidden",
    "asked": "with the mask asked pair by pair",
}
"""What is hidden in a tile, by name."""


@click.command("plan")
@click.option("--mask", default="everything", show_default=True, help='such as "causal & window(256)"')
@click.option("--query-len", type=LENGTH, required=True, help="how many queries there are")
@click.option("--key-len", type=LENGTH, help="how many keys there are; as many as queries unless it is given")
@click.option("--heads", "num_heads", type=SIZE, default=1, show_default=True, help="query heads")
@click.option("--kv-heads", "num_kv_heads", type=SIZE, help="key/value heads; as many as query heads unless given")
@click.option("--head-dim", type=SIZE, default=64, show_default=True, help="channels of one head's query and key")
@click.option("--value-dim", type=SIZE, help="channels of one head's value; as many as the key's unless given")
@click.option("--batch", type=SIZE, default=1, show_default=True, help="how many sequences there are")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--softcap", type=float, help="bound of the scores")
@click.option("--alibi", is_flag=True, help="with alibi's slopes")
@click.option("--dropout-p", type=float, default=0.0, help="share of the weights that is dropped")
@click.option(
    "--query-offset", default="bottom_right", show_default=True, help="bottom_right, top_left, or the first's position"
)
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", help="form of the answer")
def command(form: str, **call: Any) -> None:
    """Tell how qkv.attend computes a call on this machine's CPU, without computing it.

    \b
    qkv plan --mask "causal & window(256)" --query-len 4096 --heads 8 --kv-heads 2
    """  # noqa: D301 - click wants the character itself, which a raw string has not
    from qkv.compute.sizes import plan_for_sizes

    for name, same in (("key_len", "query_len"), ("num_kv_heads", "num_heads"), ("value_dim", "head_dim")):
        call[name] = call[name] or call[same]
    heads, kv_heads = call["num_heads"], call["num_kv_heads"]
    if heads % kv_heads:
        raise click.UsageError(f"--kv-heads is {kv_heads}, and must divide the --heads, which are {heads}")
    call["query_offset"] = position_of(call["query_offset"])
    try:
        plan = plan_for_sizes(**call)
    except QkvError as error:
        raise click.UsageError(_in_flags(str(error))) from None
    put(_as_json(plan) if form == "json" else _as_text(plan, call))


def _in_flags(message: str) -> str:
    """What is wrong with an argument, said of the flag. Numbers of documents and padding have none."""
    for name in ("query_offset", "dropout_p"):
        message = message.replace(name, "--" + name.replace("_", "-"))
    return message.replace("write qkv.", "call qkv.plan in Python, with mask=qkv.")


def _as_text(plan: Plan, call: dict[str, Any]) -> str:
    first = position_of_first(call["query_offset"], call["query_len"], call["key_len"])
    made = [f"- {share:.1%} of all scores are made {HIDDEN[kind]}" for kind, share in _shares(plan).items()]
    lines = [
        f"{call['mask']}: queries at positions {first} to {first + call['query_len'] - 1}, keys at 0 to "
        f"{call['key_len'] - 1}; {call['num_heads']} query heads over {call['num_kv_heads']} of keys and values.",
        str(plan),
        *made,
    ]
    return "\n".join(lines) + "\n"


def _as_json(plan: Plan) -> str:
    tiles = [
        {
            "queries": tile.queries,
            "rows": tile.rows,
            "keys": tile.keys,
            "width": tile.width,
            "hidden": _kind(tile.masking),
            "count": tile.count,
            "query_step": tile.query_step,
            "key_step": tile.key_step,
            "sequences": tile.sequences,
        }
        for tile in plan.tiles
    ]
    return (
        json.dumps({"kernel": plan.kernel, "share": plan.share, "reasons": plan.reasons, "tiles": tiles}, indent=2)
        + "\n"
    )


def _shares(plan: Plan) -> dict[str, float]:
    """The share of all scores that is made in tiles of each kind; the plan's own share is their sum."""
    pairs = dict.fromkeys(HIDDEN, 0)
    for tile in plan.tiles:
        pairs[_kind(tile.masking)] += tile.pairs
    made = sum(pairs.values())
    return {kind: plan.share * count / made for kind, count in pairs.items() if count}


def _kind(masking: object) -> str:
    return masking if isinstance(masking, str) else "table"
