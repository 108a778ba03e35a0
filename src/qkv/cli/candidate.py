"""What several commands are told of a candidate, and how they print: options that check and identify share."""

from __future__ import annotations

import codecs
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import click

from qkv.cli.values import Memory, Seconds, json_option
from qkv.vocabulary import Layout, MaskMeaning

Command = TypeVar("Command", bound=Callable[..., Any])

LAYOUTS = (*get_args(Layout), "BTE", "TBE", "TE")

CALLED = (
    click.option("--layout", type=click.Choice(LAYOUTS), help="order of the candidate's axes"),
    click.option(
        "--mask-argument", type=click.Choice(get_args(MaskMeaning)), help="what the entries of its mask argument mean"
    ),
    click.option("--init", metavar="JSON", help="arguments of its constructor"),
    click.option("--call", metavar="JSON", help="values for arguments of its call that qkv doesn't know"),
    click.option(
        "--weights", metavar="PROJ=NAME", multiple=True, help="where a projection's weight is: q_proj=W_q.weight"
    ),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="seed of every random number"),
    click.option("--time-limit", type=Seconds(), default=20.0, help="seconds that one call may take"),
    click.option(
        "--memory-limit", type=Memory(), default="4G", help="what the candidate may take: 500M or 4G; 0 for no limit"
    ),
)
"""What is said of a candidate that is called, and of the run."""

OPTIONS = (
    *CALLED,
    click.option(
        "--tensor",
        "tensors",
        metavar="ROLE=NAME",
        multiple=True,
        help="what a dump's tensor is called: query=layers.3.q",
    ),
    click.option("--verbose", "-v", is_flag=True, help="all that was tried, and what could not be shown"),
)


def candidate_options(command: Command) -> Command:
    """A decorator that gives a command what is said of a candidate, a dump among them, and of the run."""
    return _with(OPTIONS, command)


def called_options(command: Command) -> Command:
    """A decorator that gives a command what is said of a candidate that can be called, and of the run."""
    return _with(CALLED, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def conventions_from(options: Mapping[str, Any]) -> Any:
    """What the options say of the candidate itself."""
    from qkv.adapters.opening import Conventions

    return Conventions(
        layout=options["layout"],
        mask_meaning=options["mask_argument"],
        init=json_option(options["init"], "--init", '{"d_in": 48}'),
        weights=_names(options["weights"]),
        call=json_option(options["call"], "--call", '{"start_pos": 0}'),
        seed=options["seed"],
    )


def request_of(verb: str, target: str, given: Mapping[str, Any], options: Mapping[str, Any], **more: Any) -> Any:
    """The request that a command's options on the candidate make, to be repeated by that command."""
    from qkv.request import Request

    return Request(
        target=target,
        given=given,
        conventions=conventions_from(options),
        seed=options["seed"],
        time_limit=options["time_limit"],
        memory_limit=options["memory_limit"],
        tensors=tensors_from(options["tensors"]),
        repeat=shlex.join(["qkv", *sys.argv[1:]]) if sys.argv[1:2] == [verb] else "",
        **more,
    )


def encodable_json(text: str) -> str:
    """JSON as stdout can take it: what this terminal or pipe can't encode JSON can say in another way."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    unsayable = r"[\ud800-\udfff]" if codecs.lookup(encoding).name == "utf-8" else r"[^\x00-\x7f]"
    return re.sub(unsayable, lambda one: json.dumps(one[0])[1:-1], text) + "\n"


def tensors_from(given: tuple[str, ...]) -> dict[str, str]:
    """Names of a dump's tensors by role; a name alone is that of the layer.

    Raises:
        click.UsageError: a role or a name is empty, or a role is given twice.
    """
    named: dict[str, str] = {}
    for text in given:
        role, equals, name = text.partition("=")
        role, name = (role, name) if equals else ("prefix", role)
        if not role or not name:
            raise click.UsageError(f"--tensor is {text!r}; write ROLE=NAME, as in --tensor query=layers.3.q")
        if role in named:
            raise click.UsageError(f"--tensor gives {role} twice: {named[role]} and {name}. Keep one of them")
        named[role] = name
    return named


def _names(pairs: tuple[str, ...]) -> dict[str, str]:
    named = {}
    for pair in pairs:
        projection, equals, name = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(
                f"--weights is {pair!r}; write PROJECTION=NAME, as in --weights q_proj=W_query.weight"
            )
        named[projection] = name
    return named
